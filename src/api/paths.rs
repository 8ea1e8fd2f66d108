//! Opens and creates filters by the path of their directory on the disk.

use crate::admin::backup::backup;
use crate::api::config::Spec;
use crate::api::handle::Filter;
use crate::engine::lifecycle::open;
use crate::engine::lifecycle::options_match::mismatch;
use crate::error::{Error, Result};
use crate::media::{Disk, Media};
use crate::options::Options;
use ebbtide_core::kind::{Kind, Parameters};
use std::path::Path;
use std::sync::Arc;

/// Returns the directory of a filter that may have to be created.
pub(crate) fn new_disk(dir: &Path, options: &Options) -> Result<Disk> {
    let disk = options.mode.map_or_else(|| Disk::new(dir), |mode| Disk::with_mode(dir, mode));
    with_image(disk, options)
}

/// Returns the directory with the place of the image.
fn with_image(disk: Disk, options: &Options) -> Result<Disk> {
    Ok(match options.image_place()? {
        Some(place) => disk.image(place),
        None => disk,
    })
}

impl<K: Spec> Filter<K> {
    /// Creates a filter in a directory, which is created if it does not exist.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Parameter`], [`Error::Locked`], [`Error::Occupied`] if other
    /// files have names of a filter's, [`Error::Damaged`] if a filter there has lost its `meta`,
    /// [`Error::Io`] (then only the directory and the file `lock` are left behind; but if the
    /// system refuses a thread for the filter, that is there, and [`Filter::open`] opens it).
    pub fn create(dir: impl AsRef<Path>, spec: K, options: Options) -> Result<Self> {
        Self::create_on(Arc::new(new_disk(dir.as_ref(), &options)?), spec, options)
    }

    /// Opens a filter and recovers its state, however its last user ended.
    ///
    /// # Errors
    /// [`Error::NotAFilter`], [`Error::Mismatch`] if it is not of kind `K` or differs in an option
    /// that is fixed at creation, [`Error::Locked`], also while it is being copied there,
    /// [`Error::Crowded`] if 126 handles have it open, [`Error::Retired`] if the directory is
    /// removed meanwhile, [`Error::Damaged`], [`Error::Version`], [`Error::Io`].
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        let disk = with_image(Disk::new(dir.as_ref()), &options)?;
        Self::open_on(Arc::new(disk), options)
    }

    /// Opens a filter that exists and matches `spec`. One that is refused stays as it is, with all
    /// that it keeps of its log.
    ///
    /// ```
    /// use ebbtide::{Any, Error, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let [small, large] = ["bloom capacity=1000", "bloom capacity=5000"].map(str::parse::<Any>);
    /// let (small, large) = (small?, large?);
    /// Filter::create(&dir, small.clone(), Options::new())?.close()?;
    /// let refused = Filter::open_as(&dir, large, Options::new());
    /// assert!(matches!(refused, Err(Error::Mismatch { .. })));
    /// Filter::open_as(&dir, small, Options::new())?.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Filter::open`]; [`Error::Mismatch`] if it differs in a parameter that `spec` names, and
    /// [`Error::Parameter`] for parameters that no filter has.
    pub fn open_as(dir: impl AsRef<Path>, spec: K, options: Options) -> Result<Self> {
        // Impossible parameters are reported before anything is opened.
        let wanted = spec.kind()?.parameters();
        Self::open_same(dir.as_ref(), (&spec, &wanted), options)
    }

    /// Opens the filter if there is one, otherwise creates it.
    ///
    /// # Errors
    /// As [`Filter::create`] and [`Filter::open_as`].
    pub fn open_or_create(dir: impl AsRef<Path>, spec: K, options: Options) -> Result<Self> {
        // Impossible parameters are reported before anything is opened.
        let kind = spec.kind()?;
        // Plans take long for some kinds.
        let wanted = kind.parameters();
        let open = |options| Self::open_same(dir.as_ref(), (&spec, &wanted), options);
        match open(options.clone()) {
            Err(Error::NotAFilter { .. }) => {
                let media = Arc::new(new_disk(dir.as_ref(), &options)?);
                match open::create(media, kind, options.clone()) {
                    // Another process was faster.
                    Err(Error::Exists { .. }) => open(options),
                    created => Self::start(created?),
                }
            }
            opened => opened,
        }
    }

    /// Opens a filter that matches a spec. `wanted`: all parameters that its kind has.
    fn open_same(dir: &Path, (spec, wanted): (&K, &Parameters), options: Options) -> Result<Self> {
        let disk = with_image(Disk::new(dir), &options)?;
        let same = |path: &Path, found: &dyn Kind| check_same((spec, wanted), path, found);
        Self::open_if(Arc::new(disk), options, &same)
    }
}

/// Checks that a filter matches `spec`. Only parameters that `spec` names are compared: another
/// version may derive the others differently. `wanted`: all that its kind has.
fn check_same<K: Spec>(
    (spec, wanted): (&K, &Parameters),
    path: &Path,
    found: &dyn Kind,
) -> Result<()> {
    if found.name() != spec.name() {
        return Err(mismatch(path, "kind", spec.name(), found.name()));
    }
    let found = found.parameters();
    for (name, _) in spec.parameters().iter() {
        let [has, value] = [&found, wanted].map(|all| all.get(name).unwrap_or("nothing"));
        if has != value {
            return Err(mismatch(path, name, value, has));
        }
    }
    Ok(())
}

impl<K> Filter<K> {
    /// Copies the filter to a new directory while other operations continue. The copy is an
    /// independent filter and contains all operations that had returned before. It is durable on
    /// return. It says how much log is kept ([`Options::keep_log`](crate::Options::keep_log)) and
    /// has none of that log. Each of its files is there twice, so that
    /// [`inspect::restore`](crate::inspect::restore) loses nothing if one is damaged.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Damaged`] if snapshots or log without a `meta` lie there
    /// (perhaps a backup that was killed: then remove them), [`Error::Occupied`],
    /// [`Error::Locked`], [`Error::Poisoned`], [`Error::Io`]. On failure only the file `lock` is
    /// left behind.
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.backup_on(&Disk::for_copy_of(dir.as_ref(), &*self.engine().shared.media))
    }

    /// As [`Filter::backup`], to a medium provided by the caller.
    ///
    /// # Errors
    /// As [`Filter::backup`].
    pub fn backup_on(&self, to: &dyn Media) -> Result<()> {
        self.run(|engine| backup(engine, to))
    }
}
