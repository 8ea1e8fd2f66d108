//! What structures have in common that the library fills for a C program.

/// A structure that the library fills. Its first member is its size, a `usize`.
pub trait Answer: Copy {
    /// Its name in C.
    const NAME: &'static str;
    /// Its size in the first version; smaller ones are refused.
    const FIRST: usize;
}
