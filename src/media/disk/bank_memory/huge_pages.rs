//! Huge pages of the memory of an image: a query of an image of many MiB otherwise waits for the
//! translation of its addresses.

use crate::media::BankPlace;

/// The size of a huge page. Banks of at least this length are aligned to it.
pub(super) const HUGE_PAGE: u64 = 2 << 20;

/// The system's setting of huge pages for memory of no mount.
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Returns whether the system may give huge pages there.
pub(super) fn may_have_huge_pages(place: BankPlace) -> bool {
    match place {
        // The setting in force stands in brackets.
        BankPlace::Memory => {
            let setting = std::fs::read_to_string(HUGE_PAGES).unwrap_or_default();
            ["[always]", "[within_size]", "[advise]", "[force]"]
                .iter()
                .any(|on| setting.contains(on))
        }
        BankPlace::MemoryDirectory => true,
        BankPlace::DiskDirectory | BankPlace::BesideLog | BankPlace::Private => false,
    }
}
