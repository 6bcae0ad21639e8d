//! The client against a broker that does what each test says: answers late, wrongly, in another order or not at
//! all. What a real broker does is tested in `tests/e2e`.

mod connect;
mod fake;
mod producer;
mod publish;
mod requests;
mod subscribe;
