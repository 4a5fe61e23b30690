// The task of the first chapter: additions of three digits, answered with the last digit first.
//
// The files of this folder are joined into one script, in the order of playground.py. They run in a worker, without a
// library, and import nothing: a page opened from disk may not.

const ALPHABET = "$0123456789+="; // a token is a character, its id is its place here
const END = 0; // ends a completion
const BUDGET = 5; // tokens of a completion: four digits and the end
const QUESTION = 8; // tokens of a prompt, such as 128+345=

// A question has one use, by its number modulo 7: nothing that is trained on is tested on.
const USES = ["test", "learn", "imitate", "imitate", "imitate", "imitate", "imitate"];

// Random numbers in [0, 1) that are the same in every browser: the generator sfc32.
function randomNumbers(seed) {
  let a = 0x9e3779b9, b = 0x243f6a88, c = seed | 0, counter = 1;
  const next = () => {
    const sum = (((a + b) | 0) + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + sum) | 0;
    return (sum >>> 0) / 4294967296;
  };
  for (let i = 0; i < 15; i++) next(); // until the seed has reached every bit
  return next;
}

function makePrompt(random, use = "learn") {
  for (;;) {
    const number = Math.floor(random() * 1000000);
    if (USES[number % 7] === use) {
      const digits = String(number).padStart(6, "0");
      return `${digits.slice(0, 3)}+${digits.slice(3)}=`;
    }
  }
}

// For 128+345= it is 3740$: the sum 0473, last digit first, and the end.
function rightAnswer(prompt) {
  const [a, b] = prompt.slice(0, -1).split("+").map(Number);
  return [...String(a + b).padStart(4, "0")].reverse().join("") + "$";
}

const encode = (text) => [...text].map((character) => ALPHABET.indexOf(character));
const decode = (tokens) => [...tokens].map((token) => ALPHABET[token]).join("");

// Whether a completion earns the higher reward. A checker that errs gives the wrong verdict once in ten times.
const VERDICTS = {
  checked: (text, prompt) => text === rightAnswer(prompt),
  coin: (text, prompt, random) => random() < 0.5,
  form: (text) => /^\d{4}\$$/.test(text),
  noisy: (text, prompt, random) => (text === rightAnswer(prompt)) !== (random() < 0.1),
};
