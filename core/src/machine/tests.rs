//! Claims about filters in memory.
