//! The client against a broker that does what each test says: answers late, wrongly, in another order or not at
//! all. What a real broker does is tested in `tests/e2e`.

#[cfg(test)]
mod caches;
#[cfg(test)]
mod connect;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod groups;
#[cfg(test)]
mod keeping;
#[cfg(test)]
mod producer;
#[cfg(test)]
mod publish;
#[cfg(test)]
mod raw;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod resume;
#[cfg(test)]
mod settling;
#[cfg(test)]
mod subscribe;
#[cfg(test)]
mod watches;
