//! The C interface of `ebbtide`, for C, C++ and languages that call C.
//!
//! `interface`, `batch_interface`, `claim_interface` and `files_interface` have the exported
//! functions, whose comments become those of `include/ebbtide.h`, and `pointers` checks their
//! arguments: these files hold all `unsafe` code. `handle` and `batch` are what the functions
//! operate on, `call` the settings of one operation, `failure` an error with its code, `stat`
//! statistics and plans as JSON: safe Rust over the crate `ebbtide`. That is called `engine` here,
//! because this library has its name.

#![deny(unsafe_code)]

mod batch;
mod batch_interface;
mod call;
mod claim_interface;
mod codes;
mod failure;
mod files_interface;
mod handle;
mod interface;
mod pointers;
mod stat;
