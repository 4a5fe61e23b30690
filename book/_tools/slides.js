(() => {
  const slides = [...document.querySelectorAll("section")], root = document.documentElement;
  const get = (id) => document.getElementById(id);
  let at = 0;
  // A slide that is too full is set smaller, in steps, down to little more than half.
  const fit = () => {
    const shown = slides[at].querySelector(".shown");
    shown.style.fontSize = "";
    const size = parseFloat(getComputedStyle(shown).fontSize);
    for (let k = 1; shown.scrollHeight > shown.clientHeight + 1 && k > 0.55; k -= 0.05) shown.style.fontSize = `${size * k}px`;
  };
  const show = (i, keep = false) => {
    at = Math.min(Math.max(i, 0), slides.length - 1);
    slides.forEach((slide, j) => slide.classList.toggle("now", j === at));
    get("at").textContent = `${at + 1} / ${slides.length}`;
    if (!keep) history.replaceState(null, "", `#${at + 1}`);
    fit();
  };
  const say = () => {
    get("say").setAttribute("aria-pressed", root.classList.toggle("say"));
    fit();
  };
  const moves = { ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1, Home: -1e9, End: 1e9 };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " && event.target.closest("button, a")) return;
    if (event.key === "n") say();
    else if (event.key in moves) show(at + moves[event.key]);
    else return;
    event.preventDefault();
  });
  const asked = () => (parseInt(location.hash.slice(1)) || 1) - 1;
  addEventListener("hashchange", () => show(asked(), true));
  addEventListener("resize", fit);
  addEventListener("load", fit);
  get("back").onclick = () => show(at - 1);
  get("on").onclick = () => show(at + 1);
  get("say").onclick = say;
  root.classList.add("on");
  show(asked());
})();
