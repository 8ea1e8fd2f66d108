//! Kinds with random decay, at a steady rate: stable and importance-aware filters.

use crate::api::config::Weighs;
use ebbtide_core::kind::Parameters;
use ebbtide_core::kinds::{importance, stable};

/// Creates the parameters: number of cells, their highest value, cells per key, and cells that an
/// insert decrements.
fn cells(cells: u64, max: u32, k: u32, p: u32) -> Parameters {
    Parameters::new().with("cells", cells).with("max", max).with("K", k).with("P", p)
}

spec! {
    /// A stable Bloom filter: its false-positive rate never exceeds a bound, and older keys are
    /// more likely to be forgotten.
    ///
    /// ```
    /// # use ebbtide::{Filter, Options, Stable};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let filter = Filter::create(&dir, Stable::cells(100_000, 7, 5, 100), Options::new())?;
    /// filter.insert("a")?;
    /// assert!(filter.contains("a")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Stable, stable::NAME
}

impl Stable {
    /// Sets `count` cells of values up to `max`; a key has `k` of them, and an insert decrements
    /// `p`.
    #[must_use]
    pub fn cells(count: u64, max: u32, k: u32, p: u32) -> Self {
        Self(cells(count, max, k, p))
    }
}

spec! {
    /// An importance-aware Bloom filter with two classes (IBF-2C): important keys are kept longer.
    ///
    /// ```
    /// # use ebbtide::{Filter, Importance2c, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let spec = Importance2c::cells(100_000, 7, 5, 20).importance_max(100.0);
    /// let filter = Filter::create(&dir, spec, Options::new())?;
    /// filter.call().importance(90.0).insert("a")?;
    /// assert!(filter.contains("a")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Importance2c, importance::TWO_CLASSES
}

spec! {
    /// An importance-aware Bloom filter with as many classes as a cell has values (IBF-MC).
    ///
    /// ```
    /// # use ebbtide::{Filter, ImportanceMc, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let spec = ImportanceMc::cells(100_000, 7, 5, 20).importance_max(100.0);
    /// let filter = Filter::create(&dir, spec, Options::new())?;
    /// filter.call().importance(90.0).insert("a")?;
    /// assert!(filter.contains("a")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ImportanceMc, importance::MANY_CLASSES
}

spec! {
    /// An importance-aware Bloom filter (IBF-H) that spares cells of high values when it
    /// decrements.
    ///
    /// ```
    /// # use ebbtide::{Filter, ImportanceH, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("filter");
    /// let spec = ImportanceH::cells(100_000, 7, 5, 20).importance_max(100.0);
    /// let filter = Filter::create(&dir, spec, Options::new())?;
    /// filter.call().importance(90.0).insert("a")?;
    /// assert!(filter.contains("a")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ImportanceH, importance::HYBRID
}

/// Defines what the specs of importance-aware kinds have in common.
macro_rules! importance {
    ($spec:ident) => {
        impl $spec {
            /// Sets `count` cells of values up to `max`; a key has `k` of them, and an insert
            /// decrements `p`.
            #[must_use]
            pub fn cells(count: u64, max: u32, k: u32, p: u32) -> Self {
                Self(cells(count, max, k, p))
            }

            /// Sets the highest importance; `max` by default.
            #[must_use]
            pub fn importance_max(self, importance: f64) -> Self {
                Self(self.0.with("importance-max", importance))
            }
        }

        impl Weighs for $spec {}
    };
}

importance!(Importance2c);
importance!(ImportanceMc);
importance!(ImportanceH);
