//! Ship, fetch, verify: over memory, directories and faulty stores.

mod basics;
