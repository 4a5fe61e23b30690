// The interview trainer: asks one question at a time, and brings it back when it is about to be forgotten.
//
// When a question comes back is decided by FSRS, whose implementation (ts-fsrs) is handed in as `library`; the clock is
// handed in as `now`. What a reader has done is a plain object, { format, cards }, kept by the browser as text and exported
// as the same text. Numbers and decisions are in `maths`, which the tests run without a page.

const KEY = "rlhf-interview-trainer";
const FORMAT = 1;
const LARGEST = 2 ** 20; // bytes of a file that is read: a hundred cards take 30 kB
const GRADES = ["Again", "Hard", "Good", "Easy"]; // rated 1 to 4
const MEANING = ["did not know it", "with effort", "knew it", "at once"];

const maths = {
  empty: () => ({ format: FORMAT, cards: {} }),

  // One card as it was saved. A card that was never graded is not saved, so its state is 1, 2 or 3.
  card: (id, found) => {
    const wrong = (what) => { throw new Error(`the card ${id} has no usable ${what}`); };
    if (!/^[a-z0-9-]{1,80}$/.test(id)) throw new Error(`${JSON.stringify(id).slice(0, 60)} is no question's id`);
    if (typeof found !== "object" || found === null) wrong("contents");
    const number = (name, low, high) =>
      (typeof found[name] === "number" && found[name] >= low && found[name] <= high ? found[name] : wrong(name));
    const whole = (name, low, high) => (Number.isInteger(found[name]) ? number(name, low, high) : wrong(name));
    const time = (name) => {
      const at = typeof found[name] === "string" ? Date.parse(found[name]) : NaN;
      return Number.isNaN(at) ? wrong(name) : new Date(at).toISOString();
    };
    return {
      due: time("due"), last_review: time("last_review"),
      stability: number("stability", 1e-6, 1e6), difficulty: number("difficulty", 1, 10),
      scheduled_days: whole("scheduled_days", 0, 36500), learning_steps: whole("learning_steps", 0, 100),
      reps: whole("reps", 1, 1e6), lapses: whole("lapses", 0, 1e6), state: whole("state", 1, 3),
    };
  },

  // What a text holds, or an error that says what is wrong with it.
  parse: (text) => {
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
    return { format: FORMAT, cards: Object.fromEntries(Object.entries(found.cards).map(([id, card]) => [id, maths.card(id, card)])) };
  },

  text: (state) => JSON.stringify(state, null, 1),

  // Of each question what was graded last, and how many of theirs that were.
  merge: (mine, theirs) => {
    const newer = Object.entries(theirs.cards)
      .filter(([id, card]) => !mine.cards[id] || Date.parse(card.last_review) > Date.parse(mine.cards[id].last_review));
    return { state: { format: FORMAT, cards: { ...mine.cards, ...Object.fromEntries(newer) } }, taken: newer.length };
  },

  // The card after each of the four grades. A clock that was set back does not count backwards.
  outcomes: (library, card, now) => {
    const at = card && Date.parse(card.last_review) > now.getTime() ? new Date(card.last_review) : now;
    const found = library.fsrs({ request_retention: 0.9 }).repeat(card ?? library.createEmptyCard(at), at);
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
  let before; // { id, card } as it was before the last grade
  let waiting; // the clock that looks whether something has become due

  const trouble = (text) => { $(".trainer-trouble").textContent = text; };
  const status = (text = "") => {
    const cards = chosen(), fresh = maths.fresh(state, cards).length;
    const counts = `${maths.due(state, cards, now()).length} due, ${fresh} new, ${cards.length} chosen.`;
    $(".trainer-status").textContent = text ? `${text} ${counts}` : counts;
  };

  // ── what is kept ──────────────────────────────────────────────────────────────────────────────────────────────

  const load = () => {
    const text = kept.read(KEY);
    if (text === null) return maths.empty();
    try {
      return maths.parse(text);
    } catch (problem) {
      kept.write(`${KEY}-unreadable`, text);
      trouble(`What this browser had kept of your progress cannot be read: ${problem.message}. It is set aside, under the ` +
        `name ${KEY}-unreadable, and you begin anew. A file that you have exported can be imported.`);
      return maths.empty();
    }
  };
  const save = () => {
    if (!kept.write(KEY, maths.text(state))) {
      trouble("This browser does not keep your progress. Export it before you leave the page.");
    }
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
  const pose = (card) => {
    $(".trainer-about").textContent = `Level ${card.level} (${deck.levels[card.level]}), chapter ${title(card)}`;
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
    const answer = document.querySelector(`template.trainer-answer[data-id="${asked.id}"]`).content.cloneNode(true);
    $(".trainer-shown").append(answer);
    const at = now();
    $(".trainer-grades").replaceChildren(...maths.outcomes(library, state.cards[asked.id], at).map((card, i) => {
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

  const grade = (rating) => {
    if (!asked || $(".trainer-shown").hidden) return;
    const { id } = asked, at = now(), card = maths.outcomes(library, state.cards[id], at)[rating - 1];
    before = { id, card: state.cards[id] };
    state = maths.put(state, id, card);
    trouble("");
    save();
    $(".trainer-undo").disabled = false;
    askNext();
    status(`${GRADES[rating - 1]}: comes back in ${maths.wait(Date.parse(card.due) - at.getTime())}.`);
    focus();
  };

  const undo = () => {
    if (!before) return;
    state = maths.put(state, before.id, before.card);
    ask(deck.cards.find((card) => card.id === before.id));
    before = undefined;
    save();
    reveal();
    status("The last grade is taken back.");
    $(".trainer-undo").disabled = true;
  };

  // ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────

  const exported = () => {
    const address = URL.createObjectURL(new Blob([maths.text(state)], { type: "application/json" }));
    make("a", { href: address, download: `rlhf-interview-${now().toISOString().slice(0, 10)}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60e3);
    status(`Exported: ${Object.keys(state.cards).length} graded questions.`);
  };
  const imported = async (file) => {
    try {
      if (file.size > LARGEST) throw new Error("it is larger than a megabyte");
      const theirs = maths.parse(await file.text());
      const { state: both, taken } = maths.merge(state, theirs);
      trouble("");
      before = undefined;
      $(".trainer-undo").disabled = true;
      state = both;
      save();
      if (!asked || $(".trainer-shown").hidden) askNext();
      status(`Imported: ${Object.keys(theirs.cards).length} graded questions, ${taken} of them newer than here.`);
    } catch (problem) {
      trouble(`${file.name} was not imported: ${problem.message}. Nothing has changed.`);
    }
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
  $(".trainer-import").addEventListener("click", () => $("input[type=file]").click());
  $("input[type=file]").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (file) await imported(file);
    event.target.value = ""; // so that the same file can be chosen again
  });

  // Buttons, links and fields keep their own Space and Enter; a digit grades wherever in the trainer the focus is.
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.repeat) return;
    const at = event.target, here = root.contains(at);
    if (at.closest?.("input, select, textarea")) return;
    if ((event.key === " " || event.key === "Enter") && (here || at === document.body) && !at.closest("button, a, summary")) {
      if (!asked || !$(".trainer-shown").hidden) return;
      event.preventDefault();
      reveal();
    } else if (here && /^[1-4]$/.test(event.key) && asked && !$(".trainer-shown").hidden) {
      event.preventDefault();
      grade(Number(event.key));
    }
  });
  addEventListener("storage", (event) => { // graded in another tab
    if (event.key !== KEY) return;
    state = load();
    before = undefined;
    $(".trainer-undo").disabled = true;
    if (!asked || $(".trainer-shown").hidden) askNext();
    status();
  });

  state = load();
  recall();
  askNext();
  status();
};

export default { maths, start };
