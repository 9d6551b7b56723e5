//! md metadata: bytes on a member, and records without a version.

pub mod record;
