//! Declares the options about the model of a stream: the prior of a key, how keys repeat, and the
//! window in question.

use crate::key_args::Question;
use crate::priors::{DistinctOption, PriorOption, parse_distinct, parse_prior, parse_rate};
use clap::{Args, ValueEnum};
use ebbtide::Within;
use ebbtide::units::{parse_count, parse_duration};
use std::time::Duration;

/// The assumed model of the stream.
#[derive(Debug, Args)]
pub struct Assumed {
    /// The prior probability that an insert is of the key. A probability from 0 to 1 applies to
    /// all keys. uniform:U: U equally likely keys. power-law:U[:EXPONENT]: keys are their
    /// ranks, 1 to U, with probabilities that fall with this power of the rank, 1 by default.
    /// table:FILE: lines KEY<TAB>COUNT; other keys count as half an insert. counted:DIR: a
    /// counting, spectral or dynamic-count filter that counts the same stream. line: each line
    /// ends in <TAB>P (after a weight, before penalties).
    #[arg(long, value_name = "PRIOR", value_parser = parse_prior, allow_negative_numbers = true)]
    pub prior: Option<PriorOption>,
    /// How keys repeat: all (each insert is of another key), uniform:U, power-law:U[:EXPONENT], or
    /// points:FILE with lines J<TAB>D: J inserts contain D distinct keys on average. Defaults to
    /// the model of --prior, or to all if --prior has none.
    #[arg(long, value_name = "REPEATS", value_parser = parse_distinct)]
    pub distinct: Option<DistinctOption>,
    /// Inserts per second, over all keys; for filters whose window is a time.
    #[arg(long, value_name = "R", value_parser = parse_rate, allow_negative_numbers = true)]
    pub rate: Option<f64>,
}

/// The assumed model of the stream, and the window in question.
#[derive(Debug, Args)]
pub struct Believing {
    /// The assumed model of the stream.
    #[command(flatten)]
    pub assumed: Assumed,
    /// The formulas to use.
    #[arg(long, value_enum, default_value = "refined")]
    pub form: Form,
    /// Use the last N inserts as the window, not the filter's own window.
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_count,
        conflicts_with = "window",
        allow_negative_numbers = true
    )]
    window_items: Option<u64>,
    /// Use this time as the window, such as 10m, not the filter's own window.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    window: Option<Duration>,
}

impl Believing {
    /// Returns the window in question, if it is not the filter's own.
    pub fn window(&self) -> Option<Within> {
        self.window.map(Within::Time).or(self.window_items.map(Within::Items))
    }
}

/// Options of `posterior`.
#[derive(Debug, Args)]
pub struct Posterior {
    /// The filter, the keys, and the moment in question.
    #[command(flatten)]
    pub question: Question,
    /// The assumed model of the stream.
    #[command(flatten, next_help_heading = "The prior")]
    pub believing: Believing,
    /// Print the most likely and the expected age of each key as well, in inserts or seconds.
    #[arg(long)]
    pub ages: bool,
}

/// Options of `decide`.
#[derive(Debug, Args)]
pub struct Decide {
    /// The filter, the keys, and the moment in question.
    #[command(flatten)]
    pub question: Question,
    /// The assumed model of the stream.
    #[command(flatten, next_help_heading = "The prior")]
    pub believing: Believing,
    /// The cost of answering 1 for a key that is not in the window.
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        required_unless_present = "penalties"
    )]
    pub false_positive: Option<f64>,
    /// The cost of answering 0 for a key that is in the window, in the same unit.
    #[arg(
        long,
        value_name = "Y",
        allow_negative_numbers = true,
        required_unless_present = "penalties"
    )]
    pub false_negative: Option<f64>,
    /// Read <TAB>X<TAB>Y at the end of each line instead: the costs of the two mistakes for this
    /// key.
    #[arg(long, conflicts_with_all = ["false_positive", "false_negative"])]
    pub penalties: bool,
}

/// The formulas that compute a posterior.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Formulas with better calibration.
    Refined,
    /// Formulas as printed in the paper.
    Paper,
}

impl From<Form> for ebbtide::Form {
    fn from(form: Form) -> Self {
        match form {
            Form::Refined => Self::Refined,
            Form::Paper => Self::Paper,
        }
    }
}
