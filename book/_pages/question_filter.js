// The filter of the page of questions, and a link that opens an answer; apparatus_pages.py puts it at the page's end.
(() => {
  const form = document.querySelector(".question-filter");
  const questions = [...document.querySelectorAll(".question:not(.spoken)")];
  const chosen = (name) => [...form.querySelectorAll(`input[name=${name}]:checked`)].map((box) => box.value);
  const show = () => {
    const levels = chosen("level"), topics = chosen("topic");
    let shown = 0;
    for (const question of questions) {
      const fits = (!levels.length || levels.includes(question.dataset.level)) &&
        (!topics.length || question.dataset.topics.split(" ").some((topic) => topics.includes(topic)));
      question.hidden = !fits;
      shown += fits;
    }
    form.querySelector("output").textContent = `${shown} of ${questions.length} questions`;
  };
  const all = (open) => () => questions.forEach((q) => { if (!q.hidden) q.querySelector("details").open = open; });
  form.addEventListener("change", show);
  form.querySelector(".open").addEventListener("click", all(true));
  form.querySelector(".close").addEventListener("click", all(false));
  form.hidden = false;
  show();
  const opened = () => {  // a link to one question opens its answer
    const target = document.getElementById(location.hash.slice(1));
    if (target) target.closest(".question")?.querySelector("details").setAttribute("open", "");
  };
  addEventListener("hashchange", opened);
  opened();
  let folded = [];  // on paper every answer is open, and afterwards as it was
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll(".question details:not([open])")];
    folded.forEach((details) => (details.open = true));
  });
  addEventListener("afterprint", () => folded.forEach((details) => (details.open = false)));
})();
