// The interview trainer: asks one question at a time, and brings it back when it is about to be forgotten.
//
// When a question comes back is decided by FSRS, whose implementation (ts-fsrs) is handed in as `library`; the clock is
// handed in as `now`. What a reader has done is a plain object, { format, cards }, kept by the browser as text and exported
// as the same text. Numbers and decisions are in `maths`, which the tests run without a page.

const KEY = "rlhf-interview-trainer";
const FORMAT = 1;
const DAY = 24 * 60 * 60e3;
const LARGEST = 2 ** 20; // bytes of a file that is read: a hundred cards take 30 kB
const GRADES = ["Again", "Hard", "Good", "Easy"]; // rated 1 to 4
const MEANING = ["did not know it", "with effort", "knew it", "at once"];

const maths = {
  empty: () => ({ format: FORMAT, cards: {} }),

  // One card as it was saved, last graded at `latest` at the latest. A card that was never graded is not saved, so its
  // state is 1, 2 or 3. The bounds of stability and difficulty are the scheduler's.
  card: (id, found, latest) => {
    const wrong = (what) => { throw new Error(`the card ${id} has no usable ${what}`); };
    if (!/^[a-z0-9-]{1,80}$/.test(id)) throw new Error(`${JSON.stringify(id).slice(0, 60)} is no question's id`);
    if (typeof found !== "object" || found === null) wrong("contents");
    const number = (name, low, high) =>
      (typeof found[name] === "number" && found[name] >= low && found[name] <= high ? found[name] : wrong(name));
    const whole = (name, low, high) => (Number.isInteger(found[name]) ? number(name, low, high) : wrong(name));
    const time = (name, last) => {
      const at = typeof found[name] === "string" ? Date.parse(found[name]) : NaN;
      return at >= 0 && at <= last ? new Date(at).toISOString() : wrong(name);
    };
    const due = time("due", Date.UTC(2400)), reviewed = time("last_review", Date.UTC(2200));
    if (Date.parse(reviewed) > latest) {
      throw new Error(`the card ${id} was graded on ${reviewed.slice(0, 10)}, which is yet to come: a clock is wrong`);
    }
    return {
      due, last_review: reviewed,
      stability: number("stability", 0.001, 36500), difficulty: number("difficulty", 1, 10),
      scheduled_days: whole("scheduled_days", 0, 36500), learning_steps: whole("learning_steps", 0, 100),
      reps: whole("reps", 1, 1e6), lapses: whole("lapses", 0, 1e6), state: whole("state", 1, 3),
    };
  },

  // What a text holds, or an error that says what is wrong with it. A card counts as usable when the scheduler takes it.
  // With `spoiled`, a list, unusable cards are left out, and what is wrong with each is added to the list.
  parse: (text, { library, now, latest = Infinity, spoiled }) => {
    let found;
    try {
      found = JSON.parse(text);
    } catch {
      throw new Error("it is no JSON");
    }
    const object = (x) => typeof x === "object" && x !== null && !Array.isArray(x);
    if (!object(found) || !("format" in found)) throw new Error("it was not written by this trainer");
    if (found.format !== FORMAT) {
      throw new Error(`its format is ${JSON.stringify(found.format).slice(0, 20)}, and this page reads ${FORMAT}`);
    }
    if (!object(found.cards)) throw new Error("it holds no cards");
    const cards = Object.entries(found.cards).flatMap(([id, contents]) => {
      try {
        const card = maths.card(id, contents, latest);
        maths.outcomes(library, id, card, now);
        return [[id, card]];
      } catch (problem) {
        if (!spoiled) throw problem;
        spoiled.push(problem.message);
        return [];
      }
    });
    return { format: FORMAT, cards: Object.fromEntries(cards) };
  },

  text: (state) => JSON.stringify(state, null, 1),

  // Of each question what was graded last, and how many of theirs that were.
  merge: (mine, theirs) => {
    const newer = Object.entries(theirs.cards)
      .filter(([id, card]) => !mine.cards[id] || Date.parse(card.last_review) > Date.parse(mine.cards[id].last_review));
    return { state: { format: FORMAT, cards: { ...mine.cards, ...Object.fromEntries(newer) } }, taken: newer.length };
  },

  // The card after each of the four grades. Days are spread a little, by the question and how often it was asked, so
  // that what was learned on one day does not return on one day. A clock that was set back by hours does not count
  // backwards; a card from further ahead was graded by a wrong clock, and begins now.
  outcomes: (library, id, card, now) => {
    const ahead = card ? Date.parse(card.last_review) - now.getTime() : 0;
    const from = ahead > DAY ? { ...card, due: now.toISOString(), last_review: now.toISOString() } : card;
    const at = ahead > 0 && ahead <= DAY ? new Date(card.last_review) : now;
    const scheduler = library.fsrs({ request_retention: 0.9, enable_fuzz: true })
      .useStrategy(library.StrategyMode.SEED, () => `${id} ${card?.reps ?? 0}`);
    const found = scheduler.repeat(from ?? library.createEmptyCard(at), at);
    return [1, 2, 3, 4].map((rating) => {
      const { elapsed_days: _, ...after } = found[rating].card;
      return { ...after, due: after.due.toISOString(), last_review: after.last_review.toISOString() };
    });
  },

  // The state with one card replaced; without a card, with none.
  put: (state, id, card) => {
    const { [id]: _, ...others } = state.cards;
    return { format: FORMAT, cards: card ? { ...others, [id]: card } : others };
  },

  // What one step has changed, { id: [before, after] }, where a card may be missing on one side.
  changes: ({ cards: before }, { cards: after }) => Object.fromEntries(Object.keys({ ...before, ...after })
    .filter((id) => before[id] !== after[id]).map((id) => [id, [before[id], after[id]]])),

  // The state with a step taken back, but for the cards that were graded again since, in another tab.
  undone: (state, changes) => Object.entries(changes)
    .filter(([id, [, after]]) =>
      ["due", "last_review", "reps"].every((name) => state.cards[id]?.[name] === after?.[name]))
    .reduce((found, [id, [before]]) => maths.put(found, id, before), state),

  chosen: (cards, { levels, chapter }) => cards.filter((card) =>
    (!levels.length || levels.includes(card.level)) && (!chapter || card.chapter === chapter)),

  byDue: (state, cards) => cards.filter((card) => state.cards[card.id])
    .sort((a, b) => Date.parse(state.cards[a.id].due) - Date.parse(state.cards[b.id].due)),

  due: (state, cards, now) =>
    maths.byDue(state, cards).filter((card) => Date.parse(state.cards[card.id].due) <= now.getTime()),

  fresh: (state, cards) => cards.filter((card) => !state.cards[card.id]),

  // What is asked next: what is due, the longest overdue first, then what is new; undefined where there is nothing.
  next: (state, cards, now) => maths.due(state, cards, now)[0] ?? maths.fresh(state, cards)[0],

  // A time from now, in words.
  wait: (milliseconds) => {
    const minutes = Math.max(1, Math.round(milliseconds / 60e3));
    const say = (n, unit) => `${n} ${unit}${n === 1 ? "" : "s"}`;
    if (minutes < 60) return say(minutes, "minute");
    if (minutes < 24 * 60) return say(Math.round(minutes / 60), "hour");
    const days = Math.round(minutes / 60 / 24);
    if (days < 60) return say(days, "day");
    return days < 720 ? say(Math.round(days / 30.4), "month") : say(Math.round(days / 365.25), "year");
  },
};

// Where the browser keeps text: it may refuse, and then the page says so and works without.
const shelf = () => {
  const attempt = (work) => { try { return work(); } catch { return undefined; } };
  return {
    read: (name) => attempt(() => localStorage.getItem(name)) ?? null,
    write: (name, text) => attempt(() => { localStorage.setItem(name, text); return true; }) ?? false,
  };
};

const HTML = `
<form class="trainer-choice" aria-label="Choose questions">
<fieldset><legend>Level</legend></fieldset>
<p><label>Chapter <select name="chapter"><option value="">all chapters</option></select></label></p>
</form>
<p class="trainer-status" role="status"></p>
<section class="trainer-card" aria-label="Question">
<p class="trainer-about"></p>
<h2 class="trainer-question" tabindex="-1"></h2>
<p><button type="button" class="trainer-reveal">Show the answer</button></p>
<div class="trainer-shown" role="region" aria-label="Answer" tabindex="-1" hidden></div>
<div class="trainer-grades" role="group" aria-label="How well did you know it?" hidden></div>
</section>
<section class="trainer-done" aria-label="Nothing to ask" hidden>
<h2 tabindex="-1"></h2>
<p class="trainer-when"></p>
<p><button type="button" class="trainer-early">Ask it now</button></p>
</section>
<p class="trainer-file"><button type="button" class="trainer-undo" disabled>Undo the last grade</button>
<button type="button" class="trainer-export">Export progress</button>
<button type="button" class="trainer-import">Import progress</button>
<button type="button" class="trainer-anew">Begin anew</button>
<button type="button" class="trainer-aside" hidden>Download what could not be read</button>
<input type="file" accept=".json,application/json" aria-label="A file of exported progress" hidden></p>
<p class="trainer-trouble" role="alert"></p>`;

const start = ({ root, deck, library, now }) => {
  root.innerHTML = HTML;
  const $ = (selector) => root.querySelector(selector);
  const make = (tag, values, ...children) => {
    const element = Object.assign(document.createElement(tag), values);
    element.append(...children);
    return element;
  };
  const kept = shelf();
  let state = maths.empty();
  let asked; // the card on the page, if there is one
  const steps = []; // what was done on this page, { words, changes, card }, for Undo
  let waiting; // the clock that looks whether something has become due

  const trouble = (text) => { $(".trainer-trouble").textContent = text; };
  const status = (text = "") => {
    const cards = chosen(), fresh = maths.fresh(state, cards).length;
    const counts = `${maths.due(state, cards, now()).length} due, ${fresh} new, ${cards.length} chosen.`;
    $(".trainer-status").textContent = text ? `${text} ${counts}` : counts;
  };

  // ── what is kept ──────────────────────────────────────────────────────────────────────────────────────────────

  // What the browser keeps is what counts: it is read again before every change, since another tab, or a page to which
  // one has gone and come back, may have changed it unheard. Only what the browser refused to keep is added to it.
  let seen = null; // the text that was read or written last, and stands in `state`
  let refused = false; // `state` is ahead of what is kept
  const current = () => {
    const text = kept.read(KEY);
    if (text === seen) return state;
    const spoiled = [];
    let found = maths.empty();
    if (text !== null) {
      try {
        found = maths.parse(text, { library, now: now(), spoiled });
      } catch (problem) {
        spoiled.push(problem.message);
      }
    }
    seen = text;
    if (spoiled.length) setAside(text, spoiled, Object.keys(found.cards).length);
    return refused ? maths.merge(found, state).state : found;
  };

  // A text that cannot be read is kept, under a name that is still free, and can be downloaded.
  const ASIDE = `${KEY}-unreadable`;
  const unkept = []; // what could not even be set aside
  const asides = () => {
    const texts = [];
    let free = ASIDE;
    for (let text; (text = kept.read(free)) !== null; free = `${ASIDE}-${texts.length + 1}`) texts.push(text);
    return { free, texts };
  };
  const setAside = (text, spoiled, good) => {
    const { free, texts } = asides();
    const safe = texts.includes(text) || kept.write(free, text);
    if (!safe) unkept.push(text);
    $(".trainer-aside").hidden = false;
    const some = good ? ` in ${spoiled.length} of ${spoiled.length + good} questions` : "";
    trouble(`What this browser had kept of your progress cannot be read${some}: ${spoiled[0]}. ` +
      `${good ? "The others are as they were." : "You begin anew."} ${safe
        ? "The old text is set aside, and can be downloaded below."
        : "The old text could not be set aside: download it below before you grade a question."}`);
  };
  const save = () => {
    const text = maths.text(state);
    refused = !kept.write(KEY, text);
    if (refused) trouble("This browser does not keep your progress. Export it before you leave the page.");
    else seen = text;
  };

  // Every change, as a step that can be taken back.
  const change = (words, card, next) => {
    const old = current();
    state = next(old);
    steps.push({ words, card, changes: maths.changes(old, state) });
    save();
    offerUndo();
  };
  const offerUndo = () => {
    $(".trainer-undo").disabled = !steps.length;
    $(".trainer-undo").textContent = `Undo ${steps.at(-1)?.words ?? "the last grade"}`;
  };

  // Look whether it has been changed elsewhere.
  const refresh = () => {
    const found = current();
    if (found === state) return;
    state = found;
    if (!asked || $(".trainer-shown").hidden) askNext();
    status();
  };

  // ── choosing ──────────────────────────────────────────────────────────────────────────────────────────────────

  for (const [level, words] of Object.entries(deck.levels)) {
    $("fieldset").append(make("label", {}, make("input", { type: "checkbox", name: "level", value: level }), ` ${level}: ${words}`));
  }
  for (const { name, title } of deck.chapters) $("select").append(make("option", { value: name, textContent: title }));
  const choice = () => ({
    levels: [...root.querySelectorAll("input[name=level]:checked")].map((box) => Number(box.value)),
    chapter: $("select").value,
  });
  const chosen = () => maths.chosen(deck.cards, choice());
  const recall = () => {
    try {
      const { levels, chapter } = JSON.parse(kept.read(`${KEY}-choice`));
      root.querySelectorAll("input[name=level]").forEach((box) => { box.checked = levels.includes(Number(box.value)); });
      if (deck.chapters.some(({ name }) => name === chapter)) $("select").value = chapter;
    } catch { /* nothing was chosen before */ }
  };

  // ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

  const title = (card) => deck.chapters.find(({ name }) => name === card.chapter).title;
  const clear = () => {
    globalThis.MathJax?.typesetClear?.([$(".trainer-shown")]);
    $(".trainer-shown").replaceChildren();
    for (const part of [".trainer-shown", ".trainer-grades"]) $(part).hidden = true;
  };
  const ask = (card) => {
    const here = root.contains(document.activeElement);
    clearInterval(waiting);
    clear();
    asked = card;
    $(".trainer-card").hidden = !card;
    $(".trainer-done").hidden = Boolean(card);
    if (card) pose(card);
    else rest();
    if (here && !document.activeElement.checkVisibility()) focus();
  };
  const about = (card, chapter) => {
    $(".trainer-about").textContent = `Level ${card.level} (${deck.levels[card.level]}), chapter ${chapter}`;
  };
  const pose = (card) => {
    about(card, title(card).match(/^\d+/)?.[0] ?? title(card)); // a title may say the answer: it waits for that
    $(".trainer-question").textContent = card.question;
    $(".trainer-reveal").parentElement.hidden = false;
  };
  const askNext = () => ask(maths.next(state, chosen(), now()));

  // Nothing to ask: say when the next one is due, and look every second whether it is.
  const rest = () => {
    const later = maths.byDue(state, chosen())[0];
    $(".trainer-early").hidden = !later;
    $(".trainer-done h2").textContent = later ? "Nothing is due." : "No question fits this choice.";
    const look = () => {
      if (!later) return;
      const left = Date.parse(state.cards[later.id].due) - now().getTime();
      if (left > 0) {
        $(".trainer-when").textContent = `The next question comes back in ${maths.wait(left)}.`;
        return;
      }
      const here = root.contains(document.activeElement);
      askNext();
      status("A question is due.");
      if (here) focus();
    };
    $(".trainer-when").textContent = later ? "" : "Choose another level or chapter.";
    look();
    if (later) waiting = setInterval(look, 1000);
  };

  const focus = () => (asked ? $(".trainer-question") : $(".trainer-done h2")).focus();

  const typeset = async (element) => {
    if (document.readyState !== "complete") await new Promise((done) => addEventListener("load", done, { once: true }));
    const formulas = [...element.querySelectorAll(".math")];
    await globalThis.MathJax?.startup?.promise;
    if (formulas.length && formulas[0].isConnected) await globalThis.MathJax?.typesetPromise?.(formulas);
  };

  const reveal = () => {
    if (!asked || !$(".trainer-shown").hidden) return;
    const at = now(), outcomes = maths.outcomes(library, asked.id, state.cards[asked.id], at);
    about(asked, title(asked));
    $(".trainer-shown").append(
      make("p", { className: "trainer-keys", textContent: "Grade it below, or with the keys 1 (did not know it) to 4 (at once)." }),
      document.querySelector(`template.trainer-answer[data-id="${asked.id}"]`).content.cloneNode(true));
    $(".trainer-grades").replaceChildren(...outcomes.map((card, i) => {
      const when = maths.wait(Date.parse(card.due) - at.getTime());
      const button = make("button", { type: "button" }, make("b", { textContent: `${i + 1} ${GRADES[i]}` }),
        make("span", { textContent: MEANING[i] }), make("span", { className: "trainer-interval", textContent: when }));
      button.setAttribute("aria-label", `${GRADES[i]}: ${MEANING[i]}, comes back in ${when}`);
      button.addEventListener("click", () => grade(i + 1));
      return button;
    }));
    for (const part of [".trainer-shown", ".trainer-grades"]) $(part).hidden = false;
    $(".trainer-shown").focus({ preventScroll: true });
    $(".trainer-reveal").parentElement.hidden = true;
    const card = $(".trainer-card");
    if (card.getBoundingClientRect().bottom > innerHeight) card.scrollIntoView({ block: "start" });
    typeset($(".trainer-shown"));
  };

  let persistent = false; // whether the browser was asked not to throw away what it keeps
  const grade = (rating) => {
    if (!asked || $(".trainer-shown").hidden) return;
    const { id } = asked, at = now();
    trouble("");
    change("the last grade", asked, (old) =>
      maths.put(old, id, maths.outcomes(library, id, old.cards[id], at)[rating - 1]));
    if (!persistent) navigator.storage?.persist?.().catch(() => {});
    persistent = true;
    const due = Date.parse(state.cards[id].due);
    askNext();
    status(`${GRADES[rating - 1]}: comes back in ${maths.wait(due - at.getTime())}.`);
    focus();
  };

  const undo = () => {
    const step = steps.pop();
    if (!step) return;
    trouble("");
    const old = current();
    state = maths.undone(old, step.changes);
    save();
    offerUndo();
    const left = Object.keys(step.changes).length - Object.keys(maths.changes(old, state)).length;
    if (step.card && !left && chosen().includes(step.card)) {
      ask(step.card);
      reveal();
    } else {
      askNext();
      focus();
    }
    if (!left) status(`Taken back: ${step.words}.`);
    else status(step.card ? "Not taken back: it was graded again elsewhere."
      : `Taken back: ${step.words}, but for ${left} of the questions, which were graded since.`);
  };

  // ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────

  const download = (text, name) => {
    const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    make("a", { href: address, download: `rlhf-interview${name}-${now().toISOString().slice(0, 10)}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60e3);
  };
  const exported = () => {
    state = current();
    download(maths.text(state), "");
    status(`Exported: ${Object.keys(state.cards).length} graded questions.`);
  };
  const imported = async (file) => {
    try {
      if (file.size > LARGEST) throw new Error("it is larger than a megabyte");
      const at = now();
      const theirs = maths.parse(await file.text(), { library, now: at, latest: at.getTime() + DAY });
      let taken;
      trouble("");
      change("the import", undefined, (old) => {
        const both = maths.merge(old, theirs);
        taken = both.taken;
        return both.state;
      });
      if (!asked || $(".trainer-shown").hidden) askNext();
      status(`Imported: ${Object.keys(theirs.cards).length} graded questions, ${taken} of them newer than here.`);
    } catch (problem) {
      trouble(`${file.name} was not imported: ${problem.message}. Nothing has changed.`);
    }
  };
  const anew = () => {
    trouble("");
    state = current();
    const graded = Object.keys(state.cards).length;
    if (!graded) {
      status("Nothing is graded yet.");
      return;
    }
    download(maths.text(state), "");
    change("“Begin anew”", undefined, maths.empty);
    askNext();
    status(`${graded} graded questions were exported and then forgotten.`);
  };

  // ── hands ─────────────────────────────────────────────────────────────────────────────────────────────────────

  $(".trainer-choice").addEventListener("submit", (event) => event.preventDefault());
  $(".trainer-choice").addEventListener("change", () => {
    kept.write(`${KEY}-choice`, JSON.stringify(choice()));
    if (!asked || !chosen().includes(asked)) askNext();
    status();
  });
  $(".trainer-reveal").addEventListener("click", reveal);
  $(".trainer-undo").addEventListener("click", undo);
  $(".trainer-early").addEventListener("click", () => { ask(maths.byDue(state, chosen())[0]); focus(); });
  $(".trainer-export").addEventListener("click", exported);
  $(".trainer-anew").addEventListener("click", anew);
  $(".trainer-aside").addEventListener("click", () =>
    download([...asides().texts, ...unkept].join("\n\n"), "-unreadable"));
  $(".trainer-import").addEventListener("click", () => $("input[type=file]").click());
  $("input[type=file]").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (file) await imported(file);
    event.target.value = ""; // so that the same file can be chosen again
  });

  // Buttons, links and fields keep their own Space and Enter. Where nothing has the focus, the keys are the trainer's.
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.repeat) return;
    const at = event.target;
    if (!(root.contains(at) || at === document.body) || at.closest("input, select, textarea")) return;
    if ((event.key === " " || event.key === "Enter") && !event.shiftKey && !at.closest("button, a, summary")) {
      if (!asked || !$(".trainer-shown").hidden) return;
      event.preventDefault();
      reveal();
    } else if (/^[1-4]$/.test(event.key) && asked && !$(".trainer-shown").hidden) {
      event.preventDefault();
      grade(Number(event.key));
    }
  });
  addEventListener("storage", (event) => { if (event.key === KEY || event.key === null) refresh(); }); // another tab
  addEventListener("pageshow", (event) => { if (event.persisted) refresh(); }); // back, from another page
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });

  state = current();
  $(".trainer-aside").hidden = !(asides().texts.length + unkept.length);
  recall();
  askNext();
  status();
};

export default { maths, start };
