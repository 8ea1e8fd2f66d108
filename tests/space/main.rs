//! Space on a disk: full, tightly planned, and small filters.

mod full_disk;
mod small;
mod tight_disk;
