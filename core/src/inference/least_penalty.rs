//! The answer with the least expected penalty (section 2.6).

use crate::error::{Error, Result};

/// The costs of wrong answers, in any unit; right answers cost nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Penalty {
    /// The cost of "yes" for a key that is not in the window, `$FP`.
    pub false_positive: f64,
    /// The cost of "no" for a key in the window, `$FN`.
    pub false_negative: f64,
}

impl Penalty {
    /// Returns the expected penalty of "yes" at this posterior: `E_Pos`.
    #[must_use]
    pub fn of_yes(&self, posterior: f64) -> f64 {
        self.false_positive * (1.0 - posterior)
    }

    /// Returns the expected penalty of "no" at this posterior: `E_Neg`.
    #[must_use]
    pub fn of_no(&self, posterior: f64) -> f64 {
        self.false_negative * posterior
    }

    /// Checks that both are finite numbers from 0 on.
    ///
    /// # Errors
    /// [`Error::Parameter`] if one is negative, infinite or not a number.
    pub fn check(&self) -> Result<()> {
        let both =
            [("false-positive", self.false_positive), ("false-negative", self.false_negative)];
        for (name, penalty) in both {
            if !(penalty >= 0.0 && penalty.is_finite()) {
                return Err(Error::parameter(name, "a penalty, 0 or more", penalty));
            }
        }
        Ok(())
    }
}

/// Returns whether to answer "yes" for a key that is in the window with probability `posterior`: if
/// its expected penalty is not above that of "no".
///
/// ```
/// use ebbtide_core::inference::{Penalty, decide};
/// // A payment is blocked ("seen before") only if that is right more than 9 times in 10.
/// let penalty = Penalty { false_positive: 9.0, false_negative: 1.0 };
/// assert!(decide(0.95, penalty)?);
/// assert!(!decide(0.85, penalty)?);
/// # Ok::<(), ebbtide_core::Error>(())
/// ```
///
/// # Errors
/// [`Error::Parameter`] if the posterior is not from 0 to 1, and as [`Penalty::check`].
pub fn decide(posterior: f64, penalty: Penalty) -> Result<bool> {
    penalty.check()?;
    if !(0.0..=1.0).contains(&posterior) {
        return Err(Error::parameter("posterior", "a probability from 0 to 1", posterior));
    }
    Ok(penalty.of_yes(posterior) <= penalty.of_no(posterior))
}
