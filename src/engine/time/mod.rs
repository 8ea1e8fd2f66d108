//! Time: `filter_time` is the filter's, `time_over_reboots` converts readings of the clock into it,
//! also over restarts and reboots, `clock_copy` serves operations that are not written yet;
//! `lease_time` is the time of leases, and says which claims are held. No other module reads the
//! clock of the filter.

pub mod clock_copy;
pub mod filter_time;
pub mod lease_time;
pub mod time_over_reboots;
