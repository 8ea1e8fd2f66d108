//! What filters answer: recorded states, claims in absolute terms, and posteriors on known streams.

mod absolute;
mod calibration;
mod golden;
mod paper_streams;
mod saturation;
