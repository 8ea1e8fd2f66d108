//! The C interface of `ebbtide`, for C, C++ and languages that call C.
//!
//! `interface`, `batch_interface`, `claim_interface`, `files_interface`, `history_interface` and
//! `alter_interface` have the exported functions, whose comments become those of
//! `include/ebbtide.h`, and `pointers` checks their arguments: these files hold all `unsafe` code.
//! `handle`, `batch` and `history` are what the functions operate on, `altered` and `answer` what
//! they fill, `call` the settings of one operation, `failure` an error with its code of `codes`,
//! `stat` statistics and plans as JSON: safe Rust over the crate `ebbtide`. That is called `engine`
//! here, because this library has its name.

#![deny(unsafe_code)]

mod alter_interface;
mod altered;
mod answer;
mod batch;
mod batch_interface;
mod call;
mod claim_interface;
mod codes;
mod failure;
mod files_interface;
mod handle;
mod history;
mod history_interface;
mod interface;
mod pointers;
mod stat;
