//! What is copied into a snapshot.

use crate::image::BankForm;
use crate::media::Memory;
use crate::snapshot::save::*;
use crate::{Bloom, Durability, Filter, Options};
use ebbtide_core::block::store;

#[test]
fn a_bank_that_was_closed_meanwhile_is_written_empty_and_ahead_of_all_records() {
    let options = Options::new().durability(Durability::Never).background(false);
    let filter = Filter::create_on(Arc::new(Memory::new()), Bloom::capacity(1000), options);
    let filter = filter.expect("a filter");
    (0..10_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
    let (engine, mut words) = (&filter.engine(), Vec::new());
    let image = &engine.shared.image;
    let listed = &image.listed_banks().expect("a bank")[0];
    let (layout, geometry) = (image.layout(), listed.geometry());
    let kind = engine.shared.kind();
    let form = BankForm::of(kind);
    let identity = image.header().identity();
    let of = (identity.uuid, identity.timeline);
    let closed = Bank::create(image.files().store(), of.0, of.1, 7, layout, geometry, form);
    let closed = closed.expect("space");
    for bank in [listed, &closed] {
        store(&bank.block(0).1.cells[0], 1);
    }
    copy_block((kind, image), listed, 0, &mut words);
    assert_eq!(words[OWN_WORDS] & 1, 1, "a bank that is listed is copied");
    let lsn = copy_block((kind, image), &closed, 0, &mut words);
    assert_eq!((lsn + 1, words), (image.header().tail().hint(), vec![0; OWN_WORDS]));
}
