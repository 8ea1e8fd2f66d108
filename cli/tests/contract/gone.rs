//! Inputs of `dedup --output` that are gone, what is accepted of them, and what happens if they come
//! back; and places of a state, of which there are not many.

use crate::exactly_once::Place;

fn output(place: &Place) -> String {
    String::from_utf8(place.read("out")).expect("UTF-8")
}

#[test]
fn the_end_of_a_torn_record_may_be_that_of_other_systems() {
    let place = Place::new();
    let column = ["--csv-field", "id"];
    place.write("t.csv", b"id,n\r\n1,x");
    place.run("out", &["t.csv"], &[&column[..], &["--complete"]].concat());
    place.append("t.csv", b"\r\n2,y\r\n");
    place.run("out", &["t.csv"], &column);
    place.append("t.csv", b"2,y\r\n3,z\r\n");
    place.run("out", &["t.csv"], &column);
    assert_eq!(output(&place), "id,n\r\n1,x\n2,y\r\n3,z\r\n");
}
