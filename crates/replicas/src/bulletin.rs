//! What one gateway has to say: how it finds the workers, and what its tenants have used.
//!
//! A bulletin is the whole of it, not what has changed, so one that is missed is made good by the next. Times are
//! ages and expiry is silence, both by the reader's own clock: gateways need not agree what time it is.

use std::time::Duration;

use crate::codec::{Reader, write_list};
use crate::keys::{Keys, Name};

const MAGIC: [u8; 4] = *b"FSRB";
const VERSION: u8 = 1;

/// The most troubles that are told: whoever finds more of its workers dead is itself cut off.
pub const MAX_TROUBLES: usize = 256;

/// The most tenants whose use is told.
pub const MAX_USES: usize = 512;

/// One run of a gateway's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatewayId(pub u128);

/// What is wrong with a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Its requests fail.
    Failing,
    /// Nobody is there, or nobody who can serve.
    Down,
}

/// A worker that a gateway gives nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    /// Which.
    pub worker: Name,
    /// Why.
    pub kind: Kind,
    /// A new number for every time it falls ill.
    pub episode: u64,
    /// How long ago it was found out.
    pub age: Duration,
}

/// How much of a rate was used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Amount {
    /// By this gateway's own requests since its start, refunds taken off.
    pub total: f64,
    /// What counts against the limit now, everybody's use included.
    pub level: f64,
}

/// What a tenant has used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Use {
    /// Which.
    pub tenant: Name,
    /// Of requests.
    pub requests: Amount,
    /// Of tokens.
    pub tokens: Amount,
    /// Its requests that are running here.
    pub running: u32,
}

/// What one gateway has to say.
#[derive(Debug, Clone, PartialEq)]
pub struct Bulletin {
    /// Who says it.
    pub gateway: GatewayId,
    /// Grows with every one.
    pub sequence: u64,
    /// Workers it gives nothing.
    pub troubles: Vec<Trouble>,
    /// What its tenants have used.
    pub uses: Vec<Use>,
}

impl Bulletin {
    /// As it is sent.
    pub fn encode(&self, keys: &Keys) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + self.troubles.len() * 32 + self.uses.len() * 56);
        out.extend_from_slice(&MAGIC);
        out.push(VERSION);
        out.extend_from_slice(&self.gateway.0.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        write_list(&mut out, &self.troubles, MAX_TROUBLES, |out, trouble| {
            out.extend_from_slice(&trouble.worker.0);
            out.push(match trouble.kind {
                Kind::Failing => 0,
                Kind::Down => 1,
            });
            out.extend_from_slice(&trouble.episode.to_le_bytes());
            let age = u32::try_from(trouble.age.as_millis()).unwrap_or(u32::MAX);
            out.extend_from_slice(&age.to_le_bytes());
        });
        write_list(&mut out, &self.uses, MAX_USES, |out, used| {
            out.extend_from_slice(&used.tenant.0);
            for amount in [used.requests, used.tokens] {
                out.extend_from_slice(&amount.total.to_le_bytes());
                out.extend_from_slice(&amount.level.to_le_bytes());
            }
            out.extend_from_slice(&used.running.to_le_bytes());
        });
        keys.seal(out)
    }

    /// Reads one that a gateway of the group has sent.
    pub fn decode(keys: &Keys, sealed: &[u8]) -> Option<Self> {
        let message = keys.unseal(sealed)?.strip_prefix(&MAGIC)?;
        let mut reader = Reader(message.strip_prefix(&[VERSION])?);
        let bulletin = Self {
            gateway: GatewayId(reader.huge()?),
            sequence: reader.large()?,
            troubles: reader.list(MAX_TROUBLES, |reader| {
                Some(Trouble {
                    worker: reader.name()?,
                    kind: match reader.byte()? {
                        0 => Kind::Failing,
                        1 => Kind::Down,
                        _ => return None,
                    },
                    episode: reader.large()?,
                    age: Duration::from_millis(u64::from(reader.number()?)),
                })
            })?,
            uses: reader.list(MAX_USES, |reader| {
                let tenant = reader.name()?;
                let mut amount = || {
                    Some(Amount {
                        total: reader.amount()?,
                        level: reader.amount()?,
                    })
                };
                Some(Use {
                    tenant,
                    requests: amount()?,
                    tokens: amount()?,
                    running: reader.number()?,
                })
            })?,
        };
        reader.is_done().then_some(bulletin)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_bulletin() -> impl Strategy<Value = Bulletin> {
        let trouble = (0..4_u8, any::<bool>(), 0..4_u64, 0..100_u64).prop_map(
            |(worker, is_down, episode, age)| Trouble {
                worker: Name([worker; 16]),
                kind: if is_down { Kind::Down } else { Kind::Failing },
                episode,
                age: Duration::from_millis(age),
            },
        );
        let amount = || {
            (0..100_u32, 0..100_u32).prop_map(|(total, level)| Amount {
                total: f64::from(total),
                level: f64::from(level),
            })
        };
        let used = (0..4_u8, amount(), amount(), 0..9_u32).prop_map(
            |(tenant, requests, tokens, running)| Use {
                tenant: Name([tenant; 16]),
                requests,
                tokens,
                running,
            },
        );
        (
            0..4_u128,
            0..50_u64,
            proptest::collection::vec(trouble, 0..4),
            proptest::collection::vec(used, 0..4),
        )
            .prop_map(|(gateway, sequence, troubles, uses)| Bulletin {
                gateway: GatewayId(gateway),
                sequence,
                troubles,
                uses,
            })
    }

    #[test]
    fn what_is_too_much_is_cut_off() {
        let keys = Keys::new("s", "g");
        let one = Trouble {
            worker: Name([1; 16]),
            kind: Kind::Down,
            episode: 1,
            age: Duration::ZERO,
        };
        let bulletin = Bulletin {
            gateway: GatewayId(1),
            sequence: 1,
            troubles: vec![one; MAX_TROUBLES + 1],
            uses: Vec::new(),
        };
        let read = Bulletin::decode(&keys, &bulletin.encode(&keys)).unwrap();
        assert_eq!(read.troubles.len(), MAX_TROUBLES);
    }

    proptest! {
        #[test]
        fn what_was_sent_is_read(bulletin in any_bulletin()) {
            let keys = Keys::new("s", "g");
            let sealed = bulletin.encode(&keys);
            prop_assert_eq!(Bulletin::decode(&keys, &sealed), Some(bulletin));
            prop_assert_eq!(Bulletin::decode(&Keys::new("x", "g"), &sealed), None);
        }

        /// Even from somebody with the secret.
        #[test]
        fn nonsense_is_not_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), tail in any::<u8>()) {
            let keys = Keys::new("s", "g");
            let _ = Bulletin::decode(&keys, &keys.seal(bytes.clone()));
            let longer = [MAGIC.as_slice(), &[VERSION], &bytes].concat();
            let _ = Bulletin::decode(&keys, &keys.seal(longer));
            let mut one = keys.unseal(&Bulletin {
                gateway: GatewayId(1), sequence: 1, troubles: vec![], uses: vec![],
            }.encode(&keys)).unwrap().to_vec();
            one.push(tail);
            prop_assert_eq!(Bulletin::decode(&keys, &keys.seal(one)), None);
        }
    }
}
