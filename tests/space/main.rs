//! Space on a disk: full, tightly planned, and small filters.

mod full_disk;
mod max_memory;
mod small;
mod tight_disk;
