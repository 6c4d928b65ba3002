//! The part of `strftime` that chat templates use, in UTC.

use std::time::SystemTime;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];
const DAY_SECONDS: u64 = 86_400;

/// Writes `time` as `format` says; directives that are not known are copied.
pub(super) fn format(time: SystemTime, format: &str) -> String {
    let seconds = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let days = seconds / DAY_SECONDS;
    let (year, month, day) = date(days);
    let month_name = MONTHS.get(month as usize - 1).copied().unwrap_or_default();
    let day_name = DAYS.get((days % 7) as usize).copied().unwrap_or_default();
    let hour = seconds % DAY_SECONDS / 3600;
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let (padded, directive) = match chars.next() {
            Some('-') => (false, chars.next()),
            directive => (true, directive),
        };
        let number = |value: u64| {
            if padded {
                format!("{value:02}")
            } else {
                value.to_string()
            }
        };
        let text = match directive {
            Some('Y') => year.to_string(),
            Some('y') => number(year % 100),
            Some('m') => number(month),
            Some('d') => number(day),
            Some('H') => number(hour),
            Some('I') => number((hour + 11) % 12 + 1),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('M') => number(seconds % 3600 / 60),
            Some('S') => number(seconds % 60),
            Some('B') => month_name.to_owned(),
            Some('b') => month_name.chars().take(3).collect(),
            Some('A') => day_name.to_owned(),
            Some('a') => day_name.chars().take(3).collect(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('Z') => "UTC".to_owned(),
            Some('%') => "%".to_owned(),
            Some(other) => format!("%{other}"),
            None => "%".to_owned(),
        };
        out.push_str(&text);
    }
    out
}

/// Year, month and day of a day counted from 1970-01-01, in eras of 400 years that begin in March, so
/// that the leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64, pattern: &str) -> String {
        format(
            SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            pattern,
        )
    }

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(at(0, "%A, %d %B %Y"), "Thursday, 01 January 1970");
        assert_eq!(at(1_709_164_800, "%F"), "2024-02-29");
        assert_eq!(
            at(1_709_251_200, "%a %-d %b %y %H:%M:%S"),
            "Fri 1 Mar 24 00:00:00"
        );
        assert_eq!(at(4_107_542_399, "%F %I%p"), "2100-02-28 11PM");
    }

    #[test]
    fn unknown_directives_are_copied() {
        assert_eq!(at(0, "%q 100%% %"), "%q 100% %");
    }
}
