//! A result with named fields. The table and the JSON are two prints of the same fields, so
//! neither can know more than the other.

use serde::Serialize;
use serde_json::{Map, Value};

use super::Style;

/// One column: the JSON field, and how a person reads it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name of the field in JSON; in capitals it heads the column of a table.
    pub name: &'static str,
    /// How a value is shown to people.
    pub show: fn(&Value) -> String,
}

impl Field {
    /// A field shown as it is.
    #[must_use]
    pub const fn plain(name: &'static str) -> Self {
        Self {
            name,
            show: show_plain,
        }
    }

    /// A field shown in a way of its own.
    #[must_use]
    pub const fn shown(name: &'static str, show: fn(&Value) -> String) -> Self {
        Self { name, show }
    }
}

/// A list of things, or one thing, with a schema name whose number rises when a field changes its
/// meaning or goes away. Adding a field does not change it.
#[derive(Clone, Debug)]
pub struct Report {
    schema: &'static str,
    fields: &'static [Field],
    rows: Vec<Map<String, Value>>,
    one: bool,
}

impl Report {
    /// A report of many things. Each item must serialise to an object; a field it does not have
    /// is `null`, a field that is not listed is left out.
    #[must_use]
    pub fn list<T: Serialize>(
        schema: &'static str,
        fields: &'static [Field],
        items: impl IntoIterator<Item = T>,
    ) -> Self {
        let rows = items.into_iter().map(|item| row(fields, &item)).collect();
        Self {
            schema,
            fields,
            rows,
            one: false,
        }
    }

    /// A report of one thing.
    #[must_use]
    pub fn one<T: Serialize>(schema: &'static str, fields: &'static [Field], item: &T) -> Self {
        Self {
            schema,
            fields,
            rows: vec![row(fields, item)],
            one: true,
        }
    }

    /// Aligned columns with a head; one thing stands on its side, a field a line.
    #[must_use]
    pub fn table(&self, style: Style) -> String {
        if self.one {
            self.sheet(style)
        } else {
            self.columns(style)
        }
    }

    /// The lines of a list that goes on, without a head and with a gap for columns.
    #[must_use]
    pub fn row(&self, style: Style) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<String> = self.fields.iter().map(|field| cell(field, row)).collect();
            let (first, rest) = cells
                .split_first()
                .map_or(("", Vec::new()), |(first, rest)| {
                    (first.as_str(), rest.to_vec())
                });
            text.push_str(&format!("{}  {}\n", style.dim(first), rest.join("  ")));
        }
        text
    }

    fn sheet(&self, style: Style) -> String {
        let width = self
            .fields
            .iter()
            .map(|field| field.name.len())
            .max()
            .unwrap_or_default();
        let mut text = String::new();
        for row in &self.rows {
            for field in self.fields {
                let name = format!("{:<width$}", field.name.replace('_', " "));
                text.push_str(&format!("{}  {}\n", style.dim(&name), cell(field, row)));
            }
        }
        text
    }

    fn columns(&self, style: Style) -> String {
        let head: Vec<String> = self
            .fields
            .iter()
            .map(|field| field.name.to_uppercase().replace('_', " "))
            .collect();
        let body: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| self.fields.iter().map(|field| cell(field, row)).collect())
            .collect();
        let mut widths: Vec<usize> = head.iter().map(|name| name.chars().count()).collect();
        for line in &body {
            for (width, text) in widths.iter_mut().zip(line) {
                *width = (*width).max(text.chars().count());
            }
        }
        let mut text = style.bold(&line(&head, &widths));
        text.push('\n');
        for cells in &body {
            text.push_str(&line(cells, &widths));
            text.push('\n');
        }
        text
    }

    /// One JSON document: `{schema, items: […]}` for a list, `{schema, …fields}` for one thing.
    #[must_use]
    pub fn json(&self) -> String {
        let mut document = Map::new();
        document.insert("schema".into(), self.schema.into());
        if self.one {
            for row in &self.rows {
                document.extend(row.clone());
            }
        } else {
            let items = self.rows.iter().cloned().map(Value::Object);
            document.insert("items".into(), items.collect());
        }
        // Maps with text keys always serialise.
        let text = serde_json::to_string_pretty(&Value::Object(document)).unwrap_or_default();
        format!("{text}\n")
    }

    /// One object a line, each with its schema.
    #[must_use]
    pub fn ndjson(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let mut object = Map::new();
            object.insert("schema".into(), self.schema.into());
            object.extend(row.clone());
            text.push_str(&format!("{}\n", Value::Object(object)));
        }
        text
    }

    /// The first field of each thing, one a line: what a script loops over.
    #[must_use]
    pub fn names(&self) -> String {
        let mut text = String::new();
        if let Some(first) = self.fields.first() {
            for row in &self.rows {
                text.push_str(&format!("{}\n", cell(first, row)));
            }
        }
        text
    }
}

fn row<T: Serialize>(fields: &[Field], item: &T) -> Map<String, Value> {
    let object = match serde_json::to_value(item) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    };
    fields
        .iter()
        .map(|field| {
            (
                field.name.to_owned(),
                object.get(field.name).cloned().unwrap_or(Value::Null),
            )
        })
        .collect()
}

fn cell(field: &Field, row: &Map<String, Value>) -> String {
    super::escape_line((field.show)(row.get(field.name).unwrap_or(&Value::Null)).as_bytes())
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        text.push_str(cell);
        let gap = (width + 2).saturating_sub(cell.chars().count());
        text.extend(std::iter::repeat_n(' ', gap));
    }
    text.trim_end().to_owned()
}

fn show_plain(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::String(text) if text.is_empty() => "-".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(show_plain).collect::<Vec<_>>().join(","),
        Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report() -> Report {
        const FIELDS: &[Field] = &[
            Field::plain("stream"),
            Field::plain("shards"),
            Field::plain("durable"),
            Field::shown("retention_bytes", |value| {
                value
                    .as_u64()
                    .map_or_else(|| "-".into(), crate::parse::show_size)
            }),
        ];
        Report::list(
            "felixctl.test/1",
            FIELDS,
            [
                json!({"stream": "orders", "shards": 4, "durable": true, "other": 1}),
                json!({"stream": "x\u{1b}", "shards": 1, "retention_bytes": 1 << 30}),
            ],
        )
    }

    #[test]
    fn a_list_is_a_table_for_people() {
        insta::assert_snapshot!(report().table(Style::new(false)), @r"
        STREAM  SHARDS  DURABLE  RETENTION BYTES
        orders  4       yes      -
        x\x1b   1       -        1GiB
        ");
    }

    #[test]
    fn json_has_exactly_the_fields_of_the_table() {
        let document: Value = serde_json::from_str(&report().json()).expect("json");
        assert_eq!(document["schema"], "felixctl.test/1");
        assert_eq!(
            document["items"][0],
            json!({"stream": "orders", "shards": 4, "durable": true, "retention_bytes": null})
        );
        assert_eq!(document["items"][1]["retention_bytes"], 1 << 30);
    }

    #[test]
    fn each_line_of_ndjson_names_its_schema() {
        let text = report().ndjson();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("json"))
            .collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line["schema"] == "felixctl.test/1"));
    }

    #[test]
    fn names_are_the_first_field_alone() {
        assert_eq!(report().names(), "orders\nx\\x1b\n");
    }

    #[test]
    fn one_thing_stands_on_its_side() {
        const FIELDS: &[Field] = &[Field::plain("stream"), Field::plain("retention_bytes")];
        let one = Report::one("felixctl.test/1", FIELDS, &json!({"stream": "orders"}));
        insta::assert_snapshot!(one.table(Style::new(false)), @r"
        stream           orders
        retention bytes  -
        ");
        assert_eq!(
            serde_json::from_str::<Value>(&one.json()).expect("json"),
            json!({"schema": "felixctl.test/1", "stream": "orders", "retention_bytes": null})
        );
    }
}
