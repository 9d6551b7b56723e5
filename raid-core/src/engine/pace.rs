//! How fast a job may go: at least so fast when users want the members, at most so fast when not.

use crate::time::{Instant, Span};
use crate::units::Sectors;

/// md's `sync_speed_min` and `sync_speed_max`, in KiB of each member a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// What a job takes even while users are active.
    pub min: u32,
    /// What it takes at most when they are not.
    pub max: u32,
}

impl Default for Limits {
    /// The minimum is md's `speed_limit_min`. md's maximum of 200000 protects users from the job;
    /// here a job yields to every request anyway, so that the members alone are the limit.
    fn default() -> Limits {
        Limits { min: 1000, max: 4_000_000 }
    }
}

/// Users count as active for so long after a request.
const ACTIVE: Span = Span::millis(50);

/// A window of speed is so long: what was not used before is not owed.
const WINDOW: Span = Span::millis(500);

/// A job that has to wait looks again after so long: users may have gone.
const PATIENCE: Span = Span::millis(20);

/// What a job moved in the current window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    since: Instant,
    moved: Sectors,
}

impl Pace {
    pub fn moved(&mut self, sectors: Sectors) {
        self.moved += sectors;
    }

    /// When the job may go on; `None`: now. `asked_at`: when a user last wanted something.
    pub fn wait(&mut self, limits: Limits, now: Instant, asked_at: Instant) -> Option<Instant> {
        let active = now < asked_at.after(ACTIVE);
        let limit = if active { limits.min.min(limits.max) } else { limits.max };
        if now >= self.since.after(WINDOW) {
            *self = Pace { since: now, moved: Sectors::ZERO };
        }
        let bytes_a_second = u128::from(limit.max(1)) * 1024;
        let needs = u128::from(self.moved.bytes()) * 1_000_000_000 / bytes_a_second;
        let due = self.since.after(Span(needs.min(u128::from(u64::MAX)) as u64));
        (due > now).then(|| due.min(now.after(PATIENCE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of 64 KiB on a clock that stands still between them.
    fn run(limits: Limits, active: bool, until: Instant) -> u64 {
        let (mut pace, mut now, mut moved) = (Pace::default(), Instant(1_000_000_000), 0);
        while now < until {
            let asked_at = if active { now } else { Instant(0) };
            match pace.wait(limits, now, asked_at) {
                Some(at) => now = at,
                None => {
                    pace.moved(Sectors(128));
                    moved += 64;
                }
            }
        }
        moved
    }

    #[test]
    fn a_job_keeps_to_the_minimum_while_users_are_active_and_to_the_maximum_else() {
        let limits = Limits { min: 1000, max: 50_000 };
        let second = Instant(2_000_000_000);
        let (slow, fast) = (run(limits, true, second), run(limits, false, second));
        assert!((900..=1300).contains(&slow), "{slow} KiB in a second");
        assert!((45_000..=55_000).contains(&fast), "{fast} KiB in a second");
    }
}
