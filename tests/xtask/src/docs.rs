//! The tables of OPERATING.md that are made from the code: configuration keys and metrics.
//!
//! A table stands between `<!-- generated:KIND FILE -->` and `<!-- end -->`, where KIND is `config` or `metrics`.

use std::collections::BTreeMap;

use crate::rust::Source;
use crate::tree::{Complaint, Tree};

const OPERATING: &str = "docs/OPERATING.md";
const END: &str = "<!-- end -->";

/// Documents whose tables are not what the code says, with the text they should have.
///
/// # Errors
/// A marker without its end, or one that names a file that is not there.
pub(crate) fn stale(tree: &Tree) -> Result<Vec<(&'static str, String)>, String> {
    let text = tree.text(OPERATING);
    let fresh = regenerate(tree, text)?;
    Ok(if fresh == text {
        Vec::new()
    } else {
        vec![(OPERATING, fresh)]
    })
}

/// The same as complaints.
pub(crate) fn complaints(tree: &Tree) -> Vec<Complaint> {
    match stale(tree) {
        Ok(stale) => stale
            .iter()
            .map(|(path, _)| {
                Complaint::new(
                    path,
                    0,
                    "a generated table is not what the code says; run `cargo xtask docs`",
                )
            })
            .collect(),
        Err(what) => vec![Complaint::new(OPERATING, 0, what)],
    }
}

/// Whether a text is named as our variables are.
fn is_variable(text: &str) -> bool {
    text.starts_with("FELIX_") || text.starts_with("GATEWAY_")
}

fn regenerate(tree: &Tree, text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<!-- generated:") {
        let Some((marker, after)) = after.split_once(" -->") else {
            return Err("a generated marker does not close".to_owned());
        };
        let Some((_, after)) = after.split_once(END) else {
            return Err(format!("the table `{marker}` has no `{END}`"));
        };
        let table = match marker.split_once(' ') {
            Some((_, path)) if !tree.has(path) => return Err(format!("{path} is not there")),
            Some(("config", path)) => config_table(tree, path),
            Some(("metrics", path)) => metrics_table(tree.text(path)),
            _ => return Err(format!("no table is called `{marker}`")),
        };
        out.push_str(&format!(
            "{before}<!-- generated:{marker} -->\n\n{table}\n{END}"
        ));
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// One row for each triple of kind, name and help in the catalogue of metrics.
fn metrics_table(text: &str) -> String {
    let source = Source::scan(text);
    let strings: Vec<&str> = source.product_strings().collect();
    let rows = strings.windows(3).filter_map(|three| match three {
        // Two names in a row are where the metrics are registered.
        [kind @ ("counter" | "gauge" | "histogram"), name, help]
            if name.starts_with("felix_") && !help.starts_with("felix_") =>
        {
            Some(format!("| `{name}` | {kind} | {help} |\n"))
        }
        _ => None,
    });
    format!(
        "| metric | kind | meaning |\n|---|---|---|\n{}",
        rows.collect::<String>()
    )
}

/// A field of a configuration struct.
struct Field {
    name: String,
    kind: String,
    doc: String,
}

/// One row for each key, nested ones with their path.
fn config_table(tree: &Tree, path: &str) -> String {
    let text = tree.text(path);
    let source = Source::scan(text);
    let limits = path.replace("config.rs", "limits.rs");
    let keys = Keys {
        structs: structs(text),
        defaults: defaults(text),
        strings: source.product_strings().collect(),
        limits: tree.text(&limits),
        text,
    };
    let mut rows = String::from("| key | environment | default | meaning |\n|---|---|---|---|\n");
    keys.write("Config", "", &mut rows);
    rows
}

struct Keys<'a> {
    structs: BTreeMap<String, Vec<Field>>,
    defaults: BTreeMap<(String, String), String>,
    strings: Vec<&'a str>,
    limits: &'a str,
    text: &'a str,
}

impl Keys<'_> {
    fn write(&self, of: &str, prefix: &str, rows: &mut String) {
        for field in self.structs.get(of).into_iter().flatten() {
            let key = format!("{prefix}{}", field.name);
            let plain = field
                .kind
                .trim_start_matches("Option<")
                .trim_end_matches('>');
            let in_map = plain
                .strip_prefix("BTreeMap<String, ")
                .map(|inner| inner.trim_end_matches('>'));
            if self.structs.contains_key(plain) {
                self.write(plain, &format!("{key}."), rows);
            } else if let Some(inner) = in_map.filter(|inner| self.structs.contains_key(*inner)) {
                self.write(inner, &format!("{key}.NAME."), rows);
            } else {
                let variable = self
                    .variable(&key)
                    .map_or_else(String::new, |name| format!("`{name}`"));
                let default = self.default(of, field);
                rows.push_str(&format!(
                    "| `{key}` | {variable} | {default} | {} |\n",
                    field.doc
                ));
            }
        }
    }

    /// The environment variable of a key: the one it is paired with in a table; else, where variables are found by
    /// a prefix, the short prefix for keys that are listed by name and the long one for the others.
    fn variable(&self, key: &str) -> Option<String> {
        let paired = self.strings.windows(2).find_map(|two| match two {
            [variable, paired] if *paired == key && is_variable(variable) => Some(*variable),
            _ => None,
        });
        if let Some(variable) = paired.filter(|variable| !variable.ends_with('_')) {
            return Some(variable.to_owned());
        }
        let prefixes = self
            .strings
            .iter()
            .filter(|text| text.starts_with("FELIX_") && text.ends_with('_'));
        let listed = self.strings.contains(&key);
        let prefix = if listed {
            prefixes.min_by_key(|text| text.len())
        } else {
            prefixes.max_by_key(|text| text.len())
        };
        prefix.map(|prefix| format!("{prefix}{}", key.to_uppercase()))
    }

    /// A default that a function of the file makes is what that function says: its first literal.
    fn said_by<'e>(&'e self, expression: &'e str) -> &'e str {
        let body = expression
            .strip_suffix("()")
            .and_then(|name| self.text.split_once(&format!("fn {name}()")))
            .and_then(|(_, body)| body.split("\n}").next());
        let literal = body.and_then(|body| body.get(body.find('"')?..));
        let end = |literal: &str| literal.get(1..)?.find('"').map(|end| end + 2);
        literal
            .and_then(|literal| literal.get(..end(literal)?))
            .unwrap_or(expression)
    }

    fn default(&self, of: &str, field: &Field) -> String {
        let written = self.defaults.get(&(of.to_owned(), field.name.clone()));
        match written.map(String::as_str) {
            Some(expression) => humane(self.said_by(expression), self.limits),
            None if field.kind.starts_with("Option<") => "unset".to_owned(),
            None if field.kind == "bool" => "`false`".to_owned(),
            None if field.kind.starts_with('u') => "`0`".to_owned(),
            None => "none".to_owned(),
        }
    }
}

/// Public fields of each public struct, with their documentation on one line.
fn structs(text: &str) -> BTreeMap<String, Vec<Field>> {
    let mut found = BTreeMap::new();
    let mut current: Option<(String, Vec<Field>)> = None;
    let mut doc = String::new();
    for line in text.lines() {
        if let Some(rest) = line
            .strip_prefix("pub struct ")
            .and_then(|rest| rest.strip_suffix(" {"))
        {
            current = Some((rest.to_owned(), Vec::new()));
            doc.clear();
        } else if line == "}" {
            found.extend(current.take());
        } else if let Some(sentence) = line.strip_prefix("    /// ") {
            doc.push_str(if doc.is_empty() { "" } else { " " });
            doc.push_str(sentence);
        } else if let Some((_, fields)) = &mut current
            && let Some((name, kind)) = line
                .strip_prefix("    pub ")
                .and_then(|rest| rest.split_once(": "))
        {
            let kind = kind.trim_end_matches(',').to_owned();
            fields.push(Field {
                name: name.to_owned(),
                kind,
                doc: std::mem::take(&mut doc).replace('|', "\\|"),
            });
        }
    }
    found
}

/// What `impl Default` says for each field of each struct, as written.
fn defaults(text: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for block in text.split("impl Default for ").skip(1) {
        let name = block.split(' ').next().unwrap_or("").to_owned();
        let body = block.split("\n}").next().unwrap_or("");
        for line in body.lines() {
            if let Some((field, expression)) = line
                .strip_prefix("            ")
                .and_then(|rest| rest.split_once(": "))
            {
                let key = (name.clone(), field.to_owned());
                found.insert(key, expression.trim_end_matches(',').to_owned());
            }
        }
    }
    found
}

/// A default as an operator would write it.
fn humane(expression: &str, limits: &str) -> String {
    let name = expression.rsplit("::").next().unwrap_or(expression);
    let constant = limits
        .lines()
        .find(|line| line.contains(&format!("const {name}:")));
    if let Some(value) = constant.and_then(|line| line.split(" = ").nth(1)) {
        return humane(value.trim_end_matches(';'), "");
    }
    let inside = |before: &str| {
        expression
            .strip_prefix(before)
            .map(|rest| rest.trim_end_matches(')'))
    };
    let product: Option<u64> = expression
        .split(" * ")
        .map(|factor| factor.replace('_', "").parse::<u64>().ok())
        .product();
    if expression == "None" || expression.ends_with("::default()") {
        "unset".to_owned()
    } else if let Some(text) = expression.split('"').nth(1) {
        format!("`{text}`")
    } else if let Some(port) = inside("loopback(") {
        format!("`127.0.0.1:{port}`")
    } else if let Some(address) = inside("SocketAddr::from(([") {
        format!("`{}`", address.replace("], ", ":").replace(", ", "."))
    } else if let Some(seconds) = inside("Duration::from_secs(") {
        format!("{seconds} s")
    } else if let Some(bytes) = product.filter(|bytes| *bytes > 0 && bytes % (1024 * 1024) == 0) {
        format!("{} MiB", bytes / (1024 * 1024))
    } else if let Some(number) = product {
        format!("`{number}`")
    } else if expression.contains("::") {
        format!("`{}`", name.to_lowercase())
    } else {
        format!("`{expression}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"
pub struct Config {
    /// Where clients connect.
    /// Port 0 picks a free one.
    pub listen: SocketAddr,
    /// Where segments live.
    pub data_dir: Option<PathBuf>,
    /// Rates.
    pub quota: Quota,
    /// Memory.
    pub bytes: u64,
    /// At most.
    pub connections: usize,
    /// A name.
    pub name: Name,
}
pub struct Quota {
    /// A second.
    pub rate: u64,
    /// By name.
    pub tenants: BTreeMap<String, Rate>,
}
pub struct Rate {
    /// Of one.
    pub each: u64,
}
impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 5000)),
            data_dir: None,
            quota: Quota::default(),
            bytes: 64 * 1024 * 1024,
            connections: crate::limits::CONNECTIONS_MAX,
            name: default_name(),
        }
    }
}
fn default_name() -> Name {
    "felix".parse().unwrap()
}
const ENVIRONMENT: &[(&str, &str)] = &[("FELIX_BIND", "listen"), ("FELIX_RATE", "quota.rate")];
"#;

    fn operating(marker: &str) -> String {
        format!("# T\n<!-- generated:{marker} -->\nold\n<!-- end -->\nafter\n")
    }

    #[test]
    fn a_configuration_becomes_a_table() {
        let text = operating("config b/config.rs");
        let limits = "/// Why.\npub(crate) const CONNECTIONS_MAX: usize = 8192;\n";
        let tree = Tree::of(&[
            ("b/config.rs", CONFIG),
            ("b/limits.rs", limits),
            (OPERATING, &text),
        ]);
        let fresh = regenerate(&tree, &text).unwrap();
        for row in [
            "| `listen` | `FELIX_BIND` | `127.0.0.1:5000` | Where clients connect. Port 0 picks a free one. |",
            "| `data_dir` |  | unset | Where segments live. |",
            "| `quota.rate` | `FELIX_RATE` | `0` | A second. |",
            "| `quota.tenants.NAME.each` |  | `0` | Of one. |",
            "| `bytes` |  | 64 MiB | Memory. |",
            "| `connections` |  | `8192` | At most. |",
            "| `name` |  | `felix` | A name. |",
        ] {
            assert!(fresh.contains(row), "{row} in\n{fresh}");
        }
        assert!(
            fresh.starts_with("# T\n") && fresh.ends_with("\nafter\n") && !fresh.contains("old")
        );
        assert_eq!(
            regenerate(&tree, &fresh).unwrap(),
            fresh,
            "writing again changes nothing"
        );
    }

    #[test]
    fn variables_are_also_found_by_prefix() {
        let code = "pub struct Config {\n    /// A.\n    pub bind: SocketAddr,\n    /// B.\n    pub region: String,\n}\n\
                    const KNOWN: &[&str] = &[\"region\"];\nEnv::prefixed(\"FELIX_\"); Env::prefixed(\"FELIX_CP_\");\n";
        let tree = Tree::of(&[("b/config.rs", code)]);
        let table = config_table(&tree, "b/config.rs");
        assert!(table.contains("| `bind` | `FELIX_CP_BIND` |"), "{table}");
        assert!(table.contains("| `region` | `FELIX_REGION` |"), "{table}");
    }

    #[test]
    fn defaults_are_shown_as_an_operator_writes_them() {
        let limits = "pub const SECONDS: u64 = 900;\n";
        for (code, shown) in [
            ("SECONDS", "`900`"),
            ("crate::limits::SECONDS", "`900`"),
            ("loopback(8443)", "`127.0.0.1:8443`"),
            ("PathBuf::from(\"/var/lib/x\")", "`/var/lib/x`"),
            ("Secret::default()", "unset"),
            ("LogFormat::Auto", "`auto`"),
            ("64 * 1024 * 1024", "64 MiB"),
            ("5000", "`5000`"),
            ("true", "`true`"),
        ] {
            assert_eq!(humane(code, limits), shown, "{code}");
        }
    }

    #[test]
    fn a_catalogue_of_metrics_becomes_a_table() {
        let code = "pub const CATALOGUE: &[(&str, &str, &str)] = &[(\"gauge\", \"felix_x\", \"How many.\")];";
        let text = operating("metrics b/metrics.rs");
        let tree = Tree::of(&[("b/metrics.rs", code), (OPERATING, &text)]);
        assert_eq!(complaints(&tree).len(), 1, "the old table is stale");
        let fresh = regenerate(&tree, &text).unwrap();
        assert!(
            fresh.contains("| `felix_x` | gauge | How many. |"),
            "{fresh}"
        );
    }

    #[test]
    fn a_marker_that_cannot_be_followed_is_refused() {
        for marker in ["config gone.rs", "other b.rs", "config"] {
            let text = operating(marker);
            let tree = Tree::of(&[("b.rs", ""), (OPERATING, &text)]);
            assert!(regenerate(&tree, &text).is_err(), "{marker}");
        }
        assert!(regenerate(&Tree::default(), "<!-- generated:config x -->\n").is_err());
    }
}
