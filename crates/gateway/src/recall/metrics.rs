//! What the cache counts, under its names.

use std::fmt::Write;

use cache::{Bypass, CacheCounts, LATENCY_BUCKETS, Operation, Saved, StoreOutcome, Tier, Unfit};

use super::{PriceList, Recall};

impl Recall {
    /// Appends everything in OpenMetrics' text format, without the closing line.
    pub(crate) fn encode(&self, text: &mut String) {
        // Writing to a string cannot fail.
        let (counts, saved) = (self.cache.counts(), self.cache.saved());
        let written = encode(&counts, &saved, &self.prices, text);
        debug_assert!(written.is_ok());
    }
}

fn encode(
    counts: &CacheCounts,
    saved: &[Saved],
    prices: &PriceList,
    text: &mut String,
) -> std::fmt::Result {
    let page = &mut Page(text);
    page.labelled(
        "hits",
        "Answers out of a store",
        "tier",
        &Tier::LABELS,
        &counts.hits,
    )?;
    page.counter("misses", "Answers that had to be made", counts.misses)?;
    page.counter(
        "coalesced",
        "Answers shared with somebody who asked first",
        counts.coalesced,
    )?;
    page.labelled(
        "bypassed",
        "Requests that the cache had no part in",
        "reason",
        &Bypass::LABELS,
        &counts.bypassed,
    )?;
    page.counter("stored", "Answers kept", counts.stored)?;
    page.counter(
        "stored_bytes",
        "Bytes of answers kept, compressed",
        counts.stored_bytes,
    )?;
    page.labelled(
        "not_stored",
        "Answers not kept",
        "reason",
        &Unfit::LABELS,
        &counts.unfit,
    )?;
    page.counter(
        "evictions",
        "Entries that left for others",
        counts.evictions,
    )?;
    page.counter(
        "rejected",
        "Entries that were forged, foreign or unreadable",
        counts.rejected,
    )?;
    page.counter(
        "stale",
        "Entries that had expired or been invalidated",
        counts.stale,
    )?;
    page.counter(
        "retries",
        "Requests that tried again after another's failure",
        counts.retries,
    )?;
    page.counter(
        "invalidations",
        "Invalidations asked for here",
        counts.invalidations,
    )?;
    page.saved(saved, prices)?;
    page.store(counts)?;
    page.gauge("entries", "Entries in memory", counts.entries)?;
    page.gauge("bytes", "Bytes in memory", counts.bytes)?;
    page.gauge(
        "flights",
        "Answers being made that others may join",
        counts.flights as u64,
    )?;
    page.gauge(
        "flight_bytes",
        "Bytes held for those who join late",
        counts.flight_bytes as u64,
    )
}

/// A name between quotes.
fn label(name: &str) -> String {
    name.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

struct Page<'a>(&'a mut String);

impl Page<'_> {
    fn head(&mut self, name: &str, kind: &str, help: &str) -> std::fmt::Result {
        writeln!(self.0, "# HELP forespeak_cache_{name} {help}.")?;
        writeln!(self.0, "# TYPE forespeak_cache_{name} {kind}")
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> std::fmt::Result {
        self.head(name, "counter", help)?;
        writeln!(self.0, "forespeak_cache_{name}_total {value}")
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> std::fmt::Result {
        self.head(name, "gauge", help)?;
        writeln!(self.0, "forespeak_cache_{name} {value}")
    }

    fn labelled(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        words: &[&str],
        values: &[u64],
    ) -> std::fmt::Result {
        self.head(name, "counter", help)?;
        for (word, value) in words.iter().zip(values) {
            writeln!(
                self.0,
                "forespeak_cache_{name}_total{{{label}=\"{word}\"}} {value}"
            )?;
        }
        Ok(())
    }

    fn saved(&mut self, saved: &[Saved], prices: &PriceList) -> std::fmt::Result {
        let help = "Tokens that nobody had to read or generate";
        self.head("tokens_saved", "counter", help)?;
        for each in saved {
            let model = label(&each.model);
            for (kind, tokens) in [
                ("prompt", each.prompt_tokens),
                ("completion", each.completion_tokens),
            ] {
                writeln!(
                    self.0,
                    "forespeak_cache_tokens_saved_total{{model=\"{model}\",kind=\"{kind}\"}} {tokens}"
                )?;
            }
        }
        self.head("cost_saved", "counter", "What these tokens would have cost")?;
        for each in saved {
            let cost = prices.of(&each.model).cost(each);
            let model = label(&each.model);
            writeln!(
                self.0,
                "forespeak_cache_cost_saved_total{{model=\"{model}\"}} {cost}"
            )?;
        }
        Ok(())
    }

    fn store(&mut self, counts: &CacheCounts) -> std::fmt::Result {
        self.head("store_requests", "counter", "Questions to the shared store")?;
        for (operation, outcomes) in Operation::LABELS.iter().zip(&counts.store) {
            for (outcome, value) in StoreOutcome::LABELS.iter().zip(outcomes) {
                writeln!(
                    self.0,
                    "forespeak_cache_store_requests_total{{operation=\"{operation}\",outcome=\"{outcome}\"}} {value}"
                )?;
            }
        }
        let name = "store_duration_seconds";
        self.head(name, "histogram", "Time that the shared store took")?;
        let rows = counts.store_latency.iter().zip(counts.store_seconds);
        for (operation, (buckets, seconds)) in Operation::LABELS.iter().zip(rows) {
            let mut so_far = 0;
            let bounds = LATENCY_BUCKETS.iter().map(|bound| format!("{bound:?}"));
            for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(buckets) {
                so_far += count;
                writeln!(
                    self.0,
                    "forespeak_cache_{name}_bucket{{operation=\"{operation}\",le=\"{bound}\"}} {so_far}"
                )?;
            }
            writeln!(
                self.0,
                "forespeak_cache_{name}_sum{{operation=\"{operation}\"}} {seconds}"
            )?;
            writeln!(
                self.0,
                "forespeak_cache_{name}_count{{operation=\"{operation}\"}} {so_far}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Prices;
    use super::*;

    #[test]
    fn what_was_saved_is_told_in_tokens_and_money() {
        let counts = CacheCounts {
            hits: [3, 1],
            ..CacheCounts::default()
        };
        let saved = |model: &str| Saved {
            model: model.to_owned(),
            prompt_tokens: 2_000_000,
            completion_tokens: 500_000,
        };
        let dear = Prices {
            prompt: 5.0,
            completion: 20.0,
        };
        let prices = PriceList {
            unless_said: Prices {
                prompt: 0.5,
                completion: 2.0,
            },
            by_model: [("dear".to_owned(), dear)].into(),
        };
        let mut text = String::new();
        encode(&counts, &[saved("dear"), saved("m\"")], &prices, &mut text).unwrap();
        for line in [
            "forespeak_cache_hits_total{tier=\"memory\"} 3\n",
            "forespeak_cache_tokens_saved_total{model=\"dear\",kind=\"prompt\"} 2000000\n",
            "forespeak_cache_cost_saved_total{model=\"dear\"} 20\n",
            "forespeak_cache_cost_saved_total{model=\"m\\\"\"} 2\n",
            "forespeak_cache_store_duration_seconds_bucket{operation=\"get\",le=\"+Inf\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
