//! One world from one seed.

#[cfg(shuttle)]
mod faults;
#[cfg(shuttle)]
mod kinds;
#[cfg(shuttle)]
mod oracle;
#[cfg(shuttle)]
mod report;
#[cfg(shuttle)]
mod tasks;
#[cfg(shuttle)]
mod world;

#[cfg(shuttle)]
fn main() -> std::process::ExitCode {
    report::main()
}

#[cfg(not(shuttle))]
fn main() {}
