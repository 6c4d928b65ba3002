//! Several thousand words, each as frequent as a language would have it.
//!
//! By Zipf's law the word of rank r comes up in proportion to 1 / r: of the words below a hundred make up half of a
//! text, and half of them are met once in ten thousand words or less.

use std::sync::OnceLock;

/// The most frequent ones, in their order.
const COMMON: &str = "the of and to a in is that for it was on are as with be by this from or at an which not have \
    but they can we has you all will one were their there more when if would been who what its about into than some \
    could time them only other new these may then two do first any my now such like our over also after even most \
    made must many where those before through each between under don't it's doesn't can't isn't that's you're";

/// What other words are made of.
const STEMS: &str = "account act add address advance affect agree air allow alter amount answer appear apply arch area \
    arm art ask attend back balance band bank bar base bear beat bed bill bind block board boat body bond book border \
    box branch break bridge build burn call camp card care cart case cast catch cause cell centre chain chair chance \
    change charge check claim class clean clear climb clock cloud coast code cold collect colour command comment \
    commit common compare complain compute concern condition connect consider contain content control cook cool copy \
    corner correct cost count course court cover craft create credit cross crowd current cycle damage dance deal \
    decide deep deliver demand depend design detail develop differ direct discuss display distant divide doctor door \
    doubt draw dream dress drift drink drive drop earn earth edge effect elect employ enter equal estimate event \
    exact examine expand expect explain express extend face fact factor fail fall farm fast fear feature field fight \
    figure fill filter final find finish fire firm fish fit fix flat float flow fold follow force forest form found \
    frame free front fuel gain garden gather general gift glass goal gold govern grain grant grass ground group grow \
    guard guess guide habit hammer hand handle happen harbour head heal hear heart heat hold home hope horse host \
    hotel house hunt image import improve increase index inform inspect interest invent island issue join journal \
    judge jump key kind know labour land language large last laugh launch lead learn leave lend letter level light \
    limit line link list listen load local lock log long loss machine major manage mark market master match matter \
    mean measure member memory merge metal method middle mill mind mine minor miss mix model module month motion \
    mountain move music name nation nature need network night noise normal north note number object observe obtain \
    offer office operate order origin output own pack page paint pair paper parent park part pass patch path pattern \
    pay peace people perform period permit person phase phone photo pick piece place plan plant plate play point \
    police policy port position post pound power present press price print prison process produce profit program \
    project promise protect prove provide public pull pump push quarter query question queue quick quiet race rail \
    rain raise range rate reach read real reason record reduce reflect region regular relate release remain remark \
    remember remove render rent repair repeat replace reply report request require research reserve resist respond \
    rest result return reveal review rich ride ring rise risk river road rock role roof room root round route rule \
    salt sample sand save scale scene school science score screen search season seat second secret section select \
    sell send sense series serve session settle shade shape share sharp sheet shelf shell shift ship shop shore short \
    show side sign silver simple single sister sleep slow small smoke snow social soft soil solid solve sound source \
    south space speak speed spell spend spot spread spring square stable staff stage stair stamp stand star start \
    state station stay steel step stock stone stop store storm story street stress stretch strike string strong \
    student study style submit succeed suggest suit summer supply support surface switch symbol system table talk \
    target task taste teach team tell term test text theory thing think thread throw ticket tool touch tour tower \
    town track trade train transfer travel treat tree trial trip trust turn type union unit update use valley value \
    vector version view village visit voice volume vote wait walk wall want warm wash watch water wave wear weather \
    week weight west wheel white wide wild wind window wing winter wish wonder wood word work world worry write yard \
    year yield young zone café naïve façade jalapeño über";

/// How stems are varied, the most frequent first.
const ENDINGS: [&str; 7] = ["", "s", "ed", "ing", "er", "able", "ment"];
const BEGINNINGS: [&str; 3] = ["", "re", "un"];

/// Entries of the table that a word is drawn from.
const TABLE: usize = 1 << 16;

/// Words, and a table in which each of them stands as often as it is frequent.
pub(super) struct Vocabulary {
    words: Vec<String>,
    table: Vec<u16>,
}

impl Vocabulary {
    /// The one that all texts share.
    pub(super) fn shared() -> &'static Self {
        static SHARED: OnceLock<Vocabulary> = OnceLock::new();
        SHARED.get_or_init(Self::new)
    }

    fn new() -> Self {
        let stems: Vec<&str> = STEMS.split_whitespace().collect();
        let mut words: Vec<String> = COMMON.split_whitespace().map(str::to_owned).collect();
        for beginning in BEGINNINGS {
            for ending in ENDINGS {
                words.extend(
                    stems
                        .iter()
                        .map(|stem| format!("{beginning}{stem}{ending}")),
                );
            }
        }
        let harmonic: f64 = (1..=words.len()).map(|rank| 1.0 / rank as f64).sum();
        let mut table = Vec::with_capacity(TABLE);
        let mut share = 0.0;
        for rank in 1..=words.len() {
            share += 1.0 / (rank as f64 * harmonic);
            let until = (share * TABLE as f64).round() as usize;
            table.resize(until, (rank - 1) as u16);
        }
        table.resize(TABLE, 0);
        Self { words, table }
    }

    /// A word by chance: the low bits of a random number.
    pub(super) fn draw(&self, chance: u64) -> &str {
        let place = usize::from(self.table[(chance % TABLE as u64) as usize]);
        &self.words[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn words_are_as_frequent_as_in_a_language() {
        let vocabulary = Vocabulary::new();
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for chance in 0..TABLE as u64 {
            *counts.entry(vocabulary.draw(chance)).or_default() += 1;
        }
        assert!(counts.len() > 8_000, "{} different words", counts.len());
        let mut counts: Vec<usize> = counts.into_values().collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let top: usize = counts.iter().take(100).sum();
        let share = top as f64 / TABLE as f64;
        assert!(
            (0.4..0.6).contains(&share),
            "a hundred words are {share} of a text"
        );
    }
}
