//! What the read commands print, field by field.

use serde_json::{Value, json};

use crate::node::Node;

/// Replaces what differs from run to run, at any depth.
fn redacted(mut value: Value) -> Value {
    const VARYING: [&str; 14] = [
        "kid",
        "id",
        "due",
        "due_ms",
        "expires_at_ms",
        "timestamp",
        "timestamp_ms",
        "issued_at",
        "expires_at",
        "key_id",
        "directory",
        "brokers",
        "controlplane_url",
        "version",
    ];
    match &mut value {
        Value::Object(object) => {
            let setting = object.get("setting").is_some();
            for (name, value) in object.iter_mut() {
                let varies = VARYING.contains(&name.as_str()) || (setting && name == "value");
                *value = match varies && !value.is_null() {
                    true => json!(format!("[{name}]")),
                    false => redacted(value.take()),
                };
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = redacted(item.take());
            }
        }
        Value::String(text) => *text = without_port(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    value
}

/// The provider of people is named by its address, whose port the system chose.
fn without_port(text: &str) -> String {
    const HERE: &str = "http://127.0.0.1:";
    let Some((before, rest)) = text.split_once(HERE) else {
        return text.to_owned();
    };
    let after = rest.trim_start_matches(|one: char| one.is_ascii_digit());
    format!("{before}{HERE}[port]{after}")
}

#[test]
fn every_read_command_has_its_reviewed_json() {
    let node = Node::ephemeral();
    node.ok(&[
        "pub",
        "orders",
        "hello",
        "--key",
        "cust-7",
        "-H",
        "source=web",
    ]);
    node.ok(&["cache", "put", "config", "k", "v", "--ttl", "1h"]);
    node.ok(&["counter", "add", "config", "hits", "3"]);
    node.ok(&["pub", "orders", "later", "--in", "1h"]);
    node.ok(&["group", "poll", "orders", "billing"]);
    node.ok(&[
        "commit",
        "orders",
        "order-7",
        "paid",
        "--put",
        "status=paid",
    ]);
    let mut golden = serde_json::Map::new();
    for command in [
        "stream ls",
        "stream info orders",
        "tenant ls",
        "tenant info dev",
        "namespace ls",
        "namespace info default",
        "cache ls",
        "cache info config",
        "cache get config k",
        "cache ls-keys config --values",
        "cache watch config --key k --retained --count 1",
        "counter get config hits",
        "group ls orders",
        "group describe orders billing",
        "group dead-letters ls orders billing",
        "state get orders order-7 status",
        "state ls orders order-7",
        "schedule ls orders",
        "shard ls",
        "context ls",
        "context show",
        "whoami",
        "rbac policy ls",
        "rbac grouping ls",
        "idp ls",
        "keys ls",
        "service-account ls",
        "session ls",
        "quota ls",
        "token decode",
        "auth explain stream.publish stream:dev/default/orders",
        "read orders --until 1",
        "sub orders --from earliest --count 1",
        "version",
    ] {
        let args: Vec<&str> = command.split(' ').collect();
        let answer = node.json(&args);
        let schema = answer["schema"].as_str().expect("a schema");
        assert!(
            schema.starts_with("felixctl.") && schema.ends_with("/1"),
            "{command}: {schema}"
        );
        golden.insert(command.to_owned(), redacted(answer));
    }
    let text = serde_json::to_string_pretty(&Value::Object(golden)).expect("json");
    insta::assert_snapshot!(text);
}

#[test]
fn a_table_shows_the_fields_of_the_json() {
    let node = Node::ephemeral();
    let table = node.ok(&["stream", "ls"]);
    let head: Vec<String> = table
        .lines()
        .next()
        .expect("a head")
        .split("  ")
        .map(|name| name.trim().to_lowercase().replace(' ', "_"))
        .filter(|name| !name.is_empty())
        .collect();
    let json = node.json(&["stream", "ls"]);
    let fields = json["items"][0].as_object().expect("an item");
    assert_eq!(head.len(), fields.len());
    assert!(
        head.iter().all(|name| fields.contains_key(name)),
        "{head:?}"
    );
}
