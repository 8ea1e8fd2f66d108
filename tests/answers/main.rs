//! What filters answer: recorded states, claims in absolute terms, posteriors on known streams, and
//! the same as filters in memory.

mod absolute;
mod calibration;
mod golden;
mod machine_twin;
mod paper_streams;
mod saturation;
