//! Times as md stores them, written out in UTC.

/// The seconds since 1970 of a time in md's form: low 40 bits.
pub fn seconds(time: u64) -> u64 {
    time & ((1 << 40) - 1)
}

/// The time as mdadm writes it: `Tue Nov 14 22:13:20 2023`; always UTC, so that the same
/// bytes give the same text on every machine.
pub fn to_text(time: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = seconds(time);
    let (days, rest) = (seconds / 86400, seconds % 86400);
    let (year, month, day) = date(days);
    format!(
        "{} {} {day:2} {:02}:{:02}:{:02} {year}",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize],
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// Year, month (from 0) and day (from 1) of a day counted from 1970-01-01, by eras of 400
/// years that begin on 1 March (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12;
    (era * 400 + year + u64::from(month < 2), month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        for (seconds, text) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (1_700_000_000, "Tue Nov 14 22:13:20 2023"),
            (1_796_053_570, "Mon Nov 30 15:46:10 2026"),
            (4_107_542_399, "Sun Feb 28 23:59:59 2100"),
            (4_107_542_400, "Mon Mar  1 00:00:00 2100"),
        ] {
            assert_eq!(to_text(seconds), text);
            assert_eq!(to_text(seconds | 999 << 40), text, "microseconds are not seconds");
        }
    }
}
