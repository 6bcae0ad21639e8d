//! What a person is told who asks for something that is not there or not allowed.

use felix_e2e::Home;

#[tokio::test]
async fn a_misspelt_stream_fails_at_once_with_the_close_name() {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let node = home.start().await.unwrap();
    for command in ["sub", "read"] {
        let output = home.felixctl(&[command, "ordrs"]).await.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{command}: {errors}");
        assert!(errors.contains("orders"), "{command}: {errors}");
    }
    let output = home.felixctl(&["pub", "ordrs", "x"]).await.unwrap();
    assert_eq!(output.status.code(), Some(3));
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_command_line_that_makes_no_sense_is_told_apart_from_a_refusal() {
    let home = Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap();
    let output = home.felixctl(&["pub"]).await.unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = home
        .felixctl(&[
            "--brokers",
            "127.0.0.1:1",
            "--tenant",
            "dev",
            "--token",
            "x",
            "stream",
            "ls",
        ])
        .await;
    assert_ne!(output.unwrap().status.code(), Some(0));
}
