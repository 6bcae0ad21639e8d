//! What is accepted, what is refused, and what wins.

use super::*;

#[test]
fn an_unknown_key_is_refused_with_its_line() {
    let refused = load("region_id = \"eu\"\nbnid = \"127.0.0.1:1\"\n")
        .unwrap_err()
        .to_string();
    assert!(refused.contains("line 2"), "{refused}");
    assert!(refused.contains("bnid"), "{refused}");
}

#[test]
fn a_value_of_the_wrong_kind_is_refused_with_its_line() {
    let refused = load("\n\nshutdown_predrain_ms = \"soon\"\n")
        .unwrap_err()
        .to_string();
    assert!(refused.contains("line 3"), "{refused}");
}

#[test]
fn a_line_that_is_not_understood_is_not_repeated() {
    for text in [
        "region_id = \"eu\"\npostgres_url = postgres://felix:hush@db/felix\n",
        "region_id = \"eu\"\npostgres_url = \"postgres://felix:hush@db/felix\n",
        "region_id = \"eu\"\npostgres_urll = \"postgres://felix:hush@db/felix\"\n",
    ] {
        let refused = load(text).unwrap_err().to_string();
        assert!(refused.contains("line 2"), "{refused}");
        assert!(!refused.contains("hush"), "{refused}");
    }
}

#[test]
fn flags_win_over_the_file_and_the_file_over_the_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    std::fs::write(&file, "region_id = \"file\"\nshutdown_predrain_ms = 7\n").unwrap();
    let flags = serde_json::json!({ "region_id": "flag" });
    let config = Config::load(Some(&file), &flags).unwrap();
    assert_eq!(config.region_id, "flag");
    assert_eq!(config.shutdown_predrain_ms, 7);
    assert_eq!(config.bind, Config::default().bind);
}

#[test]
fn the_printed_configuration_reads_back_and_shows_no_secret() {
    let config = Config {
        bootstrap_token: Secret("hush".into()),
        postgres_url: Secret("postgres://u:hush@db/felix".into()),
        ..Config::default()
    };
    let printed = config.to_toml();
    assert!(!printed.contains("hush"));
    assert!(toml::from_str::<Config>(&printed).is_ok(), "{printed}");
}

#[test]
fn contradictions_are_refused() {
    for text in [
        "bind = \"0.0.0.0:8443\"",
        "bootstrap_enabled = true",
        "bootstrap_enabled = true\nbootstrap_token_previous = \"x\"",
        "bootstrap_dev_tokens = true",
        "bootstrap_enabled = true\nbootstrap_token = \"x\"\nbootstrap_dev_tokens = true\n\
         bootstrap_bind_addr = \"0.0.0.0:9095\"",
        "exchange_token_ttl_seconds = 0",
        "tls_cert = \"a\"",
        "bootstrap_tls_cert = \"a\"\nbootstrap_tls_key = \"b\"",
        "storage_backend = \"postgres\"",
        "postgres_url = \"postgres://u:p@db/felix?passwrod=x\"",
        "refresh_token_ttl_seconds = 0",
        "oidc_allowed_algorithms = \"HS256\"",
        "oidc_allowed_algorithms = \"\"",
    ] {
        let refused = load(text);
        assert!(
            matches!(refused, Err(ConfigRefused::Contradiction(_))),
            "{text}"
        );
    }
    assert!(load("bind = \"0.0.0.0:8443\"\nallow_plain_http = true").is_ok());
    assert!(load("bind = \"0.0.0.0:8443\"\ntls_cert = \"a\"\ntls_key = \"b\"").is_ok());
}

#[test]
fn the_ledger_is_a_raft_ledger_unless_a_database_or_another_kind_is_named() {
    let backend = |text: &str| load(text).unwrap().backend();
    let url = "postgres_url = \"postgres://u:p@db/felix\"\n";
    assert_eq!(backend(""), StorageBackend::Raft);
    assert_eq!(backend(url), StorageBackend::Postgres);
    let disk = format!("{url}storage_backend = \"disk\"");
    assert_eq!(backend(&disk), StorageBackend::Disk);
    let memory = "storage_backend = \"memory\"";
    assert_eq!(backend(memory), StorageBackend::Memory);
}

#[test]
fn a_bootstrap_token_can_come_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "s3cret\n").unwrap();
    let text = format!("bootstrap_enabled = true\nbootstrap_token_file = {token:?}");
    assert_eq!(
        load(&text).unwrap().bootstrap_token,
        Secret("s3cret".into())
    );
}

fn load(text: &str) -> Result<Config, ConfigRefused> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    std::fs::write(&file, text).unwrap();
    Config::load(Some(&file), &serde_json::json!({}))
}
