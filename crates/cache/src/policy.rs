//! What a tenant, its route and the request itself allow the cache to do.
//!
//! ```
//! # use forespeak_cache as cache;
//! use cache::{Directives, Mode, Permit, Policy, Bypass};
//!
//! let policy = Policy::default();
//! let nothing_said = Directives::default();
//! assert!(policy.permit(true, nothing_said).is_ok());
//! assert_eq!(policy.permit(false, nothing_said), Err(Bypass::Sampled));
//!
//! let refresh = Directives::read(Some("no-cache"), None);
//! assert_eq!(policy.permit(true, refresh), Ok(Permit { read: false, variants: 1, max_age: None }));
//! ```

use std::time::Duration;

use crate::fingerprint::Unclear;

/// How long an answer is good for unless the configuration says otherwise.
pub const DEFAULT_TTL: Duration = Duration::from_secs(60 * 60);

/// The largest answer that is kept unless the configuration says otherwise: a long answer of some 4,000
/// tokens, streamed token by token.
pub const DEFAULT_MAX_ENTRY_BYTES: usize = 1 << 20;

/// Most answers kept to one question.
pub const MAX_VARIANTS: u8 = 16;

/// Which answers are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// None.
    Off,
    /// Those that asking again would give again: temperature 0, or a seed.
    #[default]
    Deterministic,
    /// All. Where answers are drawn at random, so many are kept and take turns.
    Everything {
        /// 1 to [`MAX_VARIANTS`].
        variants: u8,
    },
}

/// What may be kept for a tenant on a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Which answers.
    pub mode: Mode,
    /// How long.
    pub ttl: Duration,
    /// How large, before compression.
    pub max_entry_bytes: usize,
    /// Whether texts that differ only in Unicode's composition are the same question.
    pub normalise_unicode: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            ttl: DEFAULT_TTL,
            max_entry_bytes: DEFAULT_MAX_ENTRY_BYTES,
            normalise_unicode: false,
        }
    }
}

/// What a request says about caching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Directives {
    no_store: bool,
    no_cache: bool,
    sampled_too: bool,
    max_age: Option<Duration>,
}

impl Directives {
    /// Reads the values of `Cache-Control` and of our own header, which says `off`, `refresh` or `on`.
    ///
    /// `on` asks for caching although the answer is drawn at random. It only finds what was stored for a
    /// request that asked so, too: whether it did does not change the fingerprint, but without it nothing
    /// random is ever looked up.
    pub fn read(cache_control: Option<&str>, own: Option<&str>) -> Self {
        let mut found = Self::default();
        for directive in cache_control.unwrap_or_default().split(',') {
            let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
            let is = |wanted: &str| name.trim().eq_ignore_ascii_case(wanted);
            found.no_store |= is("no-store");
            found.no_cache |= is("no-cache");
            if is("max-age") {
                let seconds = value.trim().trim_matches('"').parse().unwrap_or(0);
                found.max_age = Some(Duration::from_secs(seconds));
            }
        }
        for word in own.unwrap_or_default().split(',') {
            let is = |wanted: &str| word.trim().eq_ignore_ascii_case(wanted);
            found.no_store |= is("off");
            found.no_cache |= is("refresh");
            found.sampled_too |= is("on");
        }
        found
    }
}

/// What may be done with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    /// Whether a kept answer, or one that is being made, will do. The new one is kept either way.
    pub read: bool,
    /// How many answers take turns.
    pub variants: u8,
    /// The oldest that will do.
    pub max_age: Option<Duration>,
}

impl Policy {
    /// What may be done with a request, or why nothing.
    pub fn permit(&self, deterministic: bool, asked: Directives) -> Result<Permit, Bypass> {
        if asked.no_store {
            return Err(Bypass::Asked);
        }
        let variants = match self.mode {
            Mode::Off => return Err(Bypass::Off),
            _ if deterministic => 1,
            Mode::Everything { variants } => variants.clamp(1, MAX_VARIANTS),
            Mode::Deterministic if asked.sampled_too => 1,
            Mode::Deterministic => return Err(Bypass::Sampled),
        };
        Ok(Permit {
            read: !asked.no_cache,
            variants,
            max_age: asked.max_age,
        })
    }
}

/// Why the cache had no part in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bypass {
    /// The policy says so.
    Off,
    /// The request says so.
    Asked,
    /// The answer is drawn at random.
    Sampled,
    /// The request could not be recognised.
    Unclear(Unclear),
    /// Too many wait for the same answer, or too much waits to be sent.
    Crowded,
    /// The tenant may not use the model.
    NotAllowed,
}

impl Bypass {
    /// All labels, for those who export them.
    pub const LABELS: [&str; 12] = [
        "off",
        "asked",
        "sampled",
        "unreadable",
        "repeated_key",
        "number",
        "unknown_field",
        "uncacheable_field",
        "remote_content",
        "context",
        "crowded",
        "not_allowed",
    ];

    /// A word for metrics: one of [`Bypass::LABELS`].
    pub fn label(self) -> &'static str {
        Self::LABELS.get(self.place()).copied().unwrap_or_default()
    }

    pub(crate) fn place(self) -> usize {
        match self {
            Self::Off => 0,
            Self::Asked => 1,
            Self::Sampled => 2,
            Self::Unclear(Unclear::Unreadable) => 3,
            Self::Unclear(Unclear::RepeatedKey) => 4,
            Self::Unclear(Unclear::Number) => 5,
            Self::Unclear(Unclear::UnknownField) => 6,
            Self::Unclear(Unclear::Field(_)) => 7,
            Self::Unclear(Unclear::RemoteContent) => 8,
            Self::Unclear(Unclear::Context) => 9,
            Self::Crowded => 10,
            Self::NotAllowed => 11,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit(mode: Mode, deterministic: bool, asked: Directives) -> Result<Permit, Bypass> {
        let policy = Policy {
            mode,
            ..Policy::default()
        };
        policy.permit(deterministic, asked)
    }

    #[test]
    fn random_answers_are_kept_only_where_someone_says_so() {
        let said = Directives::default();
        let on = Directives::read(None, Some("on"));
        let everything = Mode::Everything { variants: 3 };
        assert_eq!(
            permit(Mode::Deterministic, false, said),
            Err(Bypass::Sampled)
        );
        assert_eq!(permit(Mode::Deterministic, false, on).unwrap().variants, 1);
        assert_eq!(permit(Mode::Off, false, on), Err(Bypass::Off));
        assert_eq!(permit(everything, false, said).unwrap().variants, 3);
        assert_eq!(permit(everything, true, said).unwrap().variants, 1);
        let zero = Mode::Everything { variants: 0 };
        assert_eq!(permit(zero, false, said).unwrap().variants, 1);
    }

    #[test]
    fn a_request_may_say_no() {
        for (control, own) in [
            (Some("No-Store"), None),
            (Some("max-age=3, no-store"), None),
            (None, Some("off")),
            (Some("no-cache"), Some(" OFF ")),
        ] {
            let asked = Directives::read(control, own);
            assert_eq!(permit(Mode::Deterministic, true, asked), Err(Bypass::Asked));
        }
        for (control, own) in [(Some("no-cache"), None), (None, Some("refresh"))] {
            let asked = Directives::read(control, own);
            assert!(!permit(Mode::Deterministic, true, asked).unwrap().read);
        }
        let aged = Directives::read(Some("max-age=60"), None);
        let permit = permit(Mode::Deterministic, true, aged).unwrap();
        assert_eq!(permit.max_age, Some(Duration::from_secs(60)));
        assert_eq!(
            Directives::read(Some("public, x=y"), Some("")),
            Directives::default()
        );
    }

    #[test]
    fn every_reason_has_its_own_label() {
        let all = [
            Bypass::Off,
            Bypass::Asked,
            Bypass::Sampled,
            Bypass::Unclear(Unclear::Unreadable),
            Bypass::Unclear(Unclear::RepeatedKey),
            Bypass::Unclear(Unclear::Number),
            Bypass::Unclear(Unclear::UnknownField),
            Bypass::Unclear(Unclear::Field("store")),
            Bypass::Unclear(Unclear::RemoteContent),
            Bypass::Unclear(Unclear::Context),
            Bypass::Crowded,
            Bypass::NotAllowed,
        ];
        assert!(all.iter().map(|bypass| bypass.label()).eq(Bypass::LABELS));
    }
}
