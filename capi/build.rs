//! Sets the soname, under which the system's loader looks for the library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libebbtide.so.0");
}
