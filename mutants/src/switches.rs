//! Puts mutants into a source file, each behind a switch: `a + b` becomes
//! `(if on(17) { (a) - (b) } else { a + b })`. Only insertions are made, so mutants nest.

use crate::list::{Genre, Mutant};
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, Block, Expr, ExprBinary, ExprStruct, ExprUnary, Signature, UnOp};

/// A file with its mutants.
pub struct Switched {
    pub text: String,
    /// The mutants that a switch cannot express: those of constants, conditions with `let`.
    pub left_out: Vec<u32>,
}

/// Puts those `mutants` that are in this file into its `text`. `on` is the path of the function that
/// tells whether the mutant of a number is switched on.
///
/// # Errors
/// The parser's, if the text is not Rust.
pub fn switch(text: &str, mutants: &[&Mutant], on: &str) -> Result<Switched, syn::Error> {
    let file = syn::parse_file(text)?;
    let lines = line_starts(text);
    let open = mutants.iter().map(|mutant| Open { mutant, range: mutant.bytes(text, &lines) });
    let mut walk =
        Walk { text, on, open: open.collect(), functions: Vec::new(), edits: Vec::new() };
    walk.visit_file(&file);
    walk.values();
    let mut edits = walk.edits;
    edits.sort_by_key(|edit| (edit.at, edit.order));
    let mut switched = String::with_capacity(text.len() * 2);
    let mut done = 0;
    for edit in edits {
        switched.push_str(&text[done..edit.at]);
        switched.push_str(&edit.text);
        done = edit.at;
    }
    switched.push_str(&text[done..]);
    Ok(Switched { text: switched, left_out: walk.open.iter().map(|open| open.mutant.id).collect() })
}

/// The offsets at which the lines begin.
fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

/// A mutant that is not in the file yet.
struct Open<'a> {
    mutant: &'a Mutant,
    range: Range<usize>,
}

/// Text to insert. At one place what ends comes before what begins, the inner end first, and the
/// outer beginning first.
struct Edit {
    at: usize,
    order: isize,
    text: String,
}

struct Walk<'a> {
    text: &'a str,
    on: &'a str,
    open: Vec<Open<'a>>,
    /// The bodies of functions whose value can be another one.
    functions: Vec<Range<usize>>,
    edits: Vec<Edit>,
}

impl Walk<'_> {
    /// Takes the open mutants of a genre for which `here` holds.
    fn take(&mut self, genre: Genre, here: impl Fn(&Range<usize>) -> bool) -> Vec<(u32, String)> {
        let (found, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|open| open.mutant.genre == genre && here(&open.range));
        self.open = open;
        let found: Vec<Open> = found;
        found.iter().map(|open| (open.mutant.id, open.mutant.replacement.clone())).collect()
    }

    fn source(&self, item: &impl Spanned) -> &str {
        &self.text[item.span().byte_range()]
    }

    /// Lets the switches choose between other expressions and the one of this range.
    fn choose(&mut self, range: Range<usize>, others: Vec<(u32, String)>) {
        if others.is_empty() {
            return;
        }
        let on = self.on;
        let chosen = others
            .iter()
            .map(|(id, other)| format!("if {on}({id}) {{\n/*<{id}*/ {other}\n/*{id}>*/ }} else "));
        let begin = format!("({}{{ ", chosen.collect::<String>());
        let length = range.len() as isize;
        self.edits.push(Edit { at: range.start, order: isize::MAX - length, text: begin });
        self.edits.push(Edit { at: range.end, order: length - isize::MAX, text: " })".into() });
    }

    /// Puts values that functions return at the beginnings of their bodies: of the innermost
    /// function around the mutant.
    fn values(&mut self) {
        let mut functions = std::mem::take(&mut self.functions);
        functions.sort_by_key(|body| body.len());
        for body in functions {
            let within = |range: &Range<usize>| body.start <= range.start && range.end <= body.end;
            let on = self.on;
            let values = self.take(Genre::FnValue, within).into_iter().map(|(id, value)| {
                format!(" if {on}({id}) {{\n/*<{id}*/ return {value};\n/*{id}>*/ }}")
            });
            let text = values.collect::<String>();
            self.edits.push(Edit { at: body.start + 1, order: 0, text });
        }
    }

    fn function(&mut self, signature: &Signature, body: &Block) -> bool {
        let constant = signature.constness.is_some();
        // Both values would have to be of one type without a name.
        if !constant && !self.source(&signature.output).contains("impl ") {
            self.functions.push(body.span().byte_range());
        }
        !constant
    }
}

/// Tells whether a condition binds with `let`, which an expression in parentheses cannot.
fn binds(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => binds(&binary.left) || binds(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if self.function(&item.sig, &item.block) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if self.function(&item.sig, &item.block) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default
            && self.function(&item.sig, body)
        {
            visit::visit_trait_item_fn(self, item);
        }
    }

    // What is computed when it is compiled: there is no switch yet.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        let operator = binary.op.span().byte_range();
        if !binds(&binary.left) && !binds(&binary.right) {
            let others = self.take(Genre::BinaryOperator, |range| range.start == operator.start);
            let (left, right) = (self.source(&binary.left), self.source(&binary.right));
            let assigns = self.text[operator.clone()].ends_with('=')
                && !["==", "!=", "<=", ">="].contains(&&self.text[operator]);
            let others = others.into_iter().map(|(id, other)| {
                let text = match assigns {
                    true => format!("{left} {other} {right}"),
                    false => format!("({left}) {other} ({right})"),
                };
                (id, text)
            });
            let others = others.collect();
            self.choose(binary.span().byte_range(), others);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast ExprUnary) {
        let range = unary.span().byte_range();
        if !matches!(unary.op, UnOp::Deref(_)) {
            let others = self.take(Genre::UnaryOperator, |found| found.start == range.start);
            let operand = self.source(&unary.expr).to_owned();
            let others = others.into_iter().map(|(id, other)| (id, format!("{other}{operand}")));
            let others = others.collect();
            self.choose(range, others);
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        let (start, pattern) = (arm.span().byte_range().start, arm.pat.span().byte_range());
        let deleted = self
            .take(Genre::MatchArm, |range| range.start == start || range.start == pattern.start);
        let on = self.on;
        if let Some((id, _)) = deleted.first() {
            // A switch that is on makes the arm match nothing.
            let (at, text) = match &arm.guard {
                Some((_, guard)) => (guard.span().byte_range().start, format!("!{on}({id}) && ")),
                None => (pattern.end, format!(" if !{on}({id})")),
            };
            self.edits.push(Edit { at, order: 1, text });
        }
        if let Some((_, guard)) = &arm.guard
            && !binds(guard)
        {
            let range = guard.span().byte_range();
            let others = self.take(Genre::MatchArmGuard, |found| found.start == range.start);
            self.choose(range.clone(), others);
            // `&&` of a deleted arm binds closer than `||` of the guard.
            self.edits.push(Edit { at: range.start, order: 2, text: "(".into() });
            self.edits.push(Edit { at: range.end, order: -1, text: ")".into() });
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, item: &'ast ExprStruct) {
        let range = item.span().byte_range();
        let mut others = Vec::new();
        for (index, field) in item.fields.iter().enumerate() {
            let start = field.span().byte_range().start;
            for (id, _) in self.take(Genre::StructField, |found| found.start == start) {
                let end = item.fields.iter().nth(index + 1).map_or_else(
                    || field.span().byte_range().end,
                    |next| next.span().byte_range().start,
                );
                let rest = self.text[end..range.end].trim_start_matches(',');
                others.push((id, format!("{}{rest}", &self.text[range.start..start])));
            }
        }
        self.choose(range, others);
        visit::visit_expr_struct(self, item);
    }
}
