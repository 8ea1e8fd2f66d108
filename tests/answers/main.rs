//! What filters answer: recorded states, claims in absolute terms, posteriors on known streams,
//! and equality with the filter in memory.

mod absolute;
mod batches;
mod calibration;
mod golden;
mod machine_twin;
mod paper_streams;
mod saturation;
