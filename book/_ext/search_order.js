/* Joined to what Sphinx loads beside its search; see book/_ext/search_words.py, which puts the words of search.yml in the
   place of WORDS: {word: page}. A query that names a method finds the method's own chapter first, and every result says
   which of its sections have a word of the query in their heading. Works from a folder: nothing is fetched. */
var Scorer = Object.assign(
  {
    objNameMatch: 11,
    objPartialMatch: 6,
    objPrio: { 0: 15, 1: 5, 2: -5 },
    objPrioDefault: 0,
    title: 15,
    partialTitle: 7,
    term: 5,
    partialTerm: 2,
  },
  {
    score: (result) => result[4] + rlhfSearch.bonus(result[0]),
  },
);

var rlhfSearch = {
  words: WORDS,
  tokens: (text) => text.toLowerCase().split(/[^a-z0-9@]+/).filter(Boolean),
  query: () => new URLSearchParams(window.location.search).get("q") || "",

  // What a page gets for the words of the query that lead to it. The whole query is Sphinx's own affair.
  bonus: (page) => {
    const asked = ` ${rlhfSearch.tokens(rlhfSearch.query()).join(" ")} `;
    let best = 0;
    for (const [word, home] of Object.entries(rlhfSearch.words)) {
      const named = ` ${rlhfSearch.tokens(word).join(" ")} `;
      if (named === asked) return 0;
      if (!asked.includes(named) || named === "  ") continue;
      const own = home.split("/")[1].replace(/-/g, "") === rlhfSearch.tokens(word).join("");
      const share = page === home ? 1 : page === `${home}-in-depth` ? 0.5 : 0;
      best = Math.max(best, share * (own ? 200 : 60 + named.length));
    }
    return best;
  },

  // Sections of a page whose heading has a word of the query, those with most words first.
  sections: (page) => {
    const { docnames, alltitles, titles } = Search._index;
    const number = docnames.indexOf(page);
    const asked = rlhfSearch.tokens(rlhfSearch.query()).filter((word) => word.length > 1);
    const found = [];
    for (const [title, places] of Object.entries(alltitles)) {
      const has = rlhfSearch.tokens(title);
      const count = asked.filter((word) => has.some((other) => other === word || other === `${word}s`)).length;
      for (const [file, id] of places) {
        if (count && file === number && id && title !== titles[number]) found.push({ title, id, count });
      }
    }
    return found.sort((a, b) => b.count - a.count).slice(0, 2);
  },

  show: (item) => {
    const link = item.querySelector("a");
    const [address, anchor] = (link ? link.getAttribute("href") : "").split("#");
    if (!address.endsWith(".html") || anchor || item.querySelector(".sections")) return;
    const line = document.createElement("div");
    line.className = "sections";
    const page = address.replace(/\.html$/, "").replace(/^\.\//, "");
    for (const { title, id } of rlhfSearch.sections(page)) {
      const section = document.createElement("a");
      section.href = `${address}#${id}`;
      section.textContent = title;
      line.append(section);
    }
    if (line.childElementCount) item.append(line);
  },
};

document.addEventListener("DOMContentLoaded", () => {
  const results = document.getElementById("search-results");
  if (!results) return;
  new MutationObserver(() => results.querySelectorAll("li").forEach(rlhfSearch.show)).observe(results, {
    childList: true,
    subtree: true,
  });
});
