//! What is shown of good, damaged and foreign members.
