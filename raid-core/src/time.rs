//! Time as a number: the engine is told what time it is and never looks at a clock.

/// Nanoseconds since 1970-01-01 UTC. A driver gives times that never go back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(pub u64);

impl Instant {
    /// Whole seconds since 1970.
    pub const fn seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// This time and `span` more.
    pub const fn after(self, span: Span) -> Instant {
        Instant(self.0.saturating_add(span.0))
    }
}

impl Span {
    /// `n` milliseconds.
    pub const fn millis(n: u64) -> Span {
        Span(n * 1_000_000)
    }
}
