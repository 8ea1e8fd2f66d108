//! Files with holes.

use crate::media::tests::*;

#[test]
#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    ignore = "no space is reserved or given back"
)]
fn a_hole_takes_space_only_where_it_is_allocated_and_gives_it_back() {
    on_every_medium(|media, again| {
        let (page, pages) = (4096, 64);
        let file = media.create_with_hole("a", pages * page, 2 * page).expect("space");
        let space = || file.allocated_bytes().expect("open");
        // File systems store the extent of a hole somewhere.
        let extra = 8 * page;
        assert_eq!(file.bytes().expect("open"), pages * page);
        assert!(space() < 2 * page + extra);
        let mapping = file.map(Access::Write).expect("whole words");
        let word = |at: u64| &mapping.words()[(at / 8) as usize];
        assert_eq!(load(word(40 * page)), 0);
        file.allocate(16 * page..48 * page).expect("space");
        assert!(space() >= 34 * page);
        store(word(40 * page), 7);
        again
            .open("a", Access::Write)
            .expect("it is there")
            .allocate(40 * page..41 * page)
            .expect("again");
        assert_eq!(load(word(40 * page)), 7);
        let behind = |from| file.data_end(from).expect("open");
        for from in [0, 2 * page, 40 * page + 8] {
            assert!((40 * page + 8..=pages * page).contains(&behind(from)), "from {from}");
        }
        file.free(32 * page..48 * page).expect("freed");
        assert!(space() < 18 * page + extra);
        // Stores through a mapping are seen at once, and whatever this says lies behind them.
        store(word(20 * page + 16), 7);
        assert!((20 * page + 24..=pages * page).contains(&behind(0)));
        assert!((50 * page..=pages * page).contains(&behind(50 * page)));
        assert_eq!(load(word(40 * page)), 0);
    });
}
