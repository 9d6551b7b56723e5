//! Scenarios told event by event.
