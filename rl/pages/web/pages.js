"use strict";
// Refines pages that work without it: keys, copying, folding, loading on demand, and looking again at what is live.
(() => {
  const $ = (q, at = document) => at.querySelector(q), all = (q, at = document) => [...at.querySelectorAll(q)];
  let here = -1;

  const parse = (text) => new DOMParser().parseFromString(text, "text/html");
  // In a page that is a file, rollouts are compressed, and so are the steps of long ones.
  const unpack = async (packed) => {
    const bytes = Uint8Array.from(atob(packed.dataset.gzip), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const parts = new Map();
  const part = (id) => {
    if (!parts.has(id)) parts.set(id, unpack(document.getElementById(id)).then((text) => [...parse(text).body.children]));
    return parts.get(id);
  };
  const load = async (step) => {
    const from = step.dataset.load;
    if (!from) return;
    delete step.dataset.load;
    try {
      const [, id, at] = from.match(/^#(.*):(.*)/) || [], answer = id || await fetch(from);
      if (!id && !answer.ok) throw new Error(answer.status);
      step.replaceChildren($("summary", step), ...(id ? [(await part(id))[at]] : parse(await answer.text()).body.childNodes));
    } catch {
      step.dataset.load = from;
    }
  };
  // What is unfolded is loaded when it comes into view, so that unfolding thousands of steps asks for few.
  const seen = new IntersectionObserver((entries) => entries.forEach((e) => {
    if (e.isIntersecting && e.target.open) { seen.unobserve(e.target); load(e.target); }
  }), { rootMargin: "50%" });
  document.addEventListener("toggle", (e) => { if (e.target.open && e.target.dataset.load) seen.observe(e.target); }, true);

  const stops = () => {
    const steps = all("details.step").filter((s) => !s.hidden);
    if (steps.length) return steps;
    const bad = all("pre.log .del");
    return bad.length ? bad : all("table.rows tr").filter((r) => $("a.go", r));
  };
  const move = (by) => {
    const to = stops();
    if (!to.length) return;
    here = Math.max(0, Math.min(to.length - 1, here + by));
    to.forEach((s, i) => s.classList.toggle("here", i === here));
    to[here].scrollIntoView({ block: "nearest" });
    if (to[here].id) history.replaceState(null, "", "#" + to[here].id);
  };
  const follow = (rel) => { const a = $(`a[rel=${rel}]`); if (a) a.click(); };
  const keys = {
    j: () => move(1), k: () => move(-1), "[": () => follow("prev"), "]": () => follow("next"),
    f: () => { const s = stops()[here]; if (s && "open" in s) s.open = !s.open; },
    F: () => { const s = all("details.step"), open = s.some((d) => !d.open); s.forEach((d) => { d.open = open; }); },
    Enter: () => { const a = stops()[here] && $("a.go", stops()[here]); if (a) a.click(); },
    "/": () => { const i = $("input[type=search]"); if (i) i.focus(); },
    "?": () => $("#keys").showModal(),
  };
  document.addEventListener("keydown", (e) => {
    // What a browser is to find must be there; it unfolds the step itself.
    if ((e.ctrlKey || e.metaKey) && e.key === "f") all("details[data-load^='#']").forEach(load);
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input, textarea, button, a, summary") && e.key === "Enter" ||
        e.target.matches("input, textarea")) return;
    if (keys[e.key]) { keys[e.key](); e.preventDefault(); }
  });

  document.addEventListener("click", async (e) => {
    const t = e.target;
    if (t.dataset.copy !== undefined) {
      try { await navigator.clipboard.writeText(t.dataset.copy); t.textContent = "copied"; }
      catch { getSelection().selectAllChildren(t.previousElementSibling); }
    } else if (t.dataset.help !== undefined) {
      keys["?"]();
    } else if (t.matches(".training circle.touch")) {
      const step = (t.textContent.match(/step (\d+):/) || [])[1];
      if (step && $(".training").dataset.steps.split(" ").includes(step)) location = "step/" + step;
    } else if (t.matches("[data-zoom] circle.touch")) {
      const [, run, step] = t.textContent.match(/^(.*), step (\d+):/) || [];
      if (step) location = "../" + encodeURIComponent(run) + "/step/" + step;
    } else if (t.matches("[data-zoom] figcaption, .training figcaption")) {
      t.parentElement.classList.toggle("wide");
    }
  });

  // Dragging over a chart asks for the page of these steps.
  let drag = null;
  const place = (e) => {
    const box = drag.svg.getBoundingClientRect(), view = drag.svg.viewBox.baseVal;
    const share = ((e.clientX - box.left) / box.width * view.width - 52) / (view.width - 66);
    const from = +drag.svg.dataset.from, to = +drag.svg.dataset.to;
    return from + Math.max(0, Math.min(1, share)) * (to - from);
  };
  document.addEventListener("pointerdown", (e) => {
    const svg = e.button === 0 && e.target.closest("[data-zoom] svg[data-from]");
    if (!svg) return;
    const band = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    drag = { svg, band, x: e.clientX };
    drag.at = place(e);
    for (const [name, value] of [["class", "band c5"], ["y", 10], ["height", 224], ["width", 0]]) band.setAttribute(name, value);
    svg.append(band);
  });
  document.addEventListener("pointermove", (e) => {
    if (!drag) return;
    const box = drag.svg.getBoundingClientRect(), unit = drag.svg.viewBox.baseVal.width / box.width;
    drag.band.setAttribute("x", (Math.min(drag.x, e.clientX) - box.left) * unit);
    drag.band.setAttribute("width", Math.abs(e.clientX - drag.x) * unit);
  });
  document.addEventListener("pointerup", (e) => {
    if (!drag) return;
    const [from, to] = [drag.at, place(e)].sort((a, b) => a - b).map(Math.round);
    drag.band.remove();
    drag = null;
    if (to <= from) return;
    const q = new URLSearchParams(location.search);
    q.set("from", from);
    q.set("to", to);
    location.search = q;
  });

  const unfold = () => {
    const s = location.hash && document.getElementById(location.hash.slice(1));
    if (s && s.matches("details.step")) { s.open = true; here = stops().indexOf(s); s.scrollIntoView(); }
  };
  // The hash says which rollout of a page that is a file is shown.
  const show = async () => {
    const list = $("#index"), shown = $("#shown");
    if (!list) return unfold();
    const packed = document.getElementById(location.hash.slice(1));
    if (packed && shown.contains(packed)) return unfold();
    list.hidden = !!(packed && packed.dataset.gzip);
    shown.hidden = !list.hidden;
    here = -1;
    if (!list.hidden) return;
    const page = parse(`<p><a href="#">all attempts</a><h2></h2>${await unpack(packed)}`);
    $("h2", page).textContent = packed.dataset.title;
    const later = all("div.steps > details", page).slice(200); // which take a browser a second to lay out
    later.forEach((s) => s.remove());
    shown.replaceChildren(...page.body.childNodes);
    scrollTo(0, 0);
    for (const list = $("div.steps", shown); later.length && list.isConnected;) {
      await new Promise((next) => setTimeout(next));
      list.append(...later.splice(0, 200));
    }
  };
  addEventListener("hashchange", show);
  show();

  const rows = $("input[data-rows]");
  if (rows) rows.addEventListener("input", () => {
    const words = rows.value.toLowerCase().split(/\s+/);
    all("table.rows tr").slice(1).forEach((r) => { r.hidden = !words.every((w) => r.textContent.toLowerCase().includes(w)); });
  });

  const look = async () => {
    try {
      const answer = await fetch(location.pathname + location.search);
      if (!answer.ok) throw new Error(answer.status); // what is shown may have been removed from the disk, and stays
      const page = parse(await answer.text());
      const next = $("#main", page), now = $("#main");
      const ticked = new Set(all("input:checked").map((i) => i.value));
      if (next && !now.contains(document.activeElement) && !ticked.size) {
        const folded = new Map(all("details[id]").map((d) => [d.id, d.open]));
        all("details[id]", next).forEach((d) => { if (folded.has(d.id)) d.open = folded.get(d.id); });
        now.replaceWith(document.adoptNode(next));
      }
      if (!("live" in page.body.dataset)) return;
    } catch { /* the server has ended, or will answer again */ }
    setTimeout(look, 3000);
  };
  if ("live" in document.body.dataset) setTimeout(look, 3000);
})();
