// Additions to pages that work without it: keys, copies of ids, times of the reader's own zone.
"use strict";

document.documentElement.classList.add("scripted");

// What a key is typed into: not a slider, nor a box, which keep the focus after they were used.
const TYPED = 'input:not([type="range"], [type="checkbox"]), select, textarea, [contenteditable]';
const inField = (target) => target.matches(TYPED);
let isGoing = false; // After `g`, a digit names a part of the console.
const WITH_DIGITS = ["Shift", "AltGraph", "CapsLock"]; // Some keyboards have digits with these only.

document.addEventListener("keydown", (event) => {
  if (WITH_DIGITS.includes(event.key)) return;
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape" && event.target.matches("input, select, textarea")) return event.target.blur();
  if (inField(event.target)) return;
  const part = isGoing && document.querySelectorAll(".parts a")[Number(event.key) - 1];
  isGoing = event.key === "g";
  if (part) return part.click();
  if (event.key === "/") {
    const search = document.getElementById("search");
    if (search) { event.preventDefault(); search.focus(); search.select(); }
  } else if (event.key === "?") {
    const keys = document.getElementById("keys");
    keys.open = !keys.open;
    if (keys.open) keys.querySelector("summary").focus();
  }
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.classList.add("done");
    setTimeout(() => button.classList.remove("done"), 1200);
  } catch { /* Without the permission the text can still be selected: it is selected whole. */ }
});

const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

function complete(within) {
  within.querySelectorAll("time[datetime]").forEach((time) => {
    time.title = local.format(new Date(time.dateTime));
  });
  if (navigator.clipboard) {
    within.querySelectorAll("button[data-copy]").forEach((button) => { button.hidden = false; });
  }
}

// What is refreshed asks for it by `hx-trigger="refresh"`; a hidden tab asks for nothing, so it
// misses nothing. `data-refreshed` is the time of what is shown.
let unanswered = 0; // Refreshes that were asked for after the last one that is shown.

function noteStale(isStale) {
  const part = isStale && document.querySelector("[data-refreshed]");
  note(part ? `Not refreshed since ${part.dataset.refreshed.slice(11, 19)} UTC.` : "");
}

function note(text) {
  const notice = document.getElementById("stale");
  if (notice.textContent === text) return; // It is announced once.
  notice.textContent = text;
  notice.hidden = !text;
}

setInterval(() => {
  if (document.hidden) return;
  const parts = document.querySelectorAll("[data-refreshed]");
  if (parts.length && ++unanswered > 2) noteStale(true);
  parts.forEach((part) => htmx.trigger(part, "refresh"));
}, 2000);

// The slider of a picture says the event that it stands at, also before that is shown.
const describe = (slider) => {
  slider.setAttribute("aria-valuetext", `event ${slider.value} of ${slider.max}`);
};

document.addEventListener("input", (event) => {
  if (event.target.matches(".asof input")) describe(event.target);
});

function failed() {
  if (document.querySelector("[data-refreshed]")) {
    if (!document.hidden) noteStale(true);
    return;
  }
  note("Not updated: the console did not answer, or refused. Reload the page.");
  document.querySelectorAll(".asof input").forEach((slider) => {
    slider.value = slider.form.querySelector("output").textContent; // What the figures are of.
    describe(slider);
  });
}

// The JSON of a page is renewed with the part that it is about, and stays open if it was.
let isJsonOpen = false;
const json = () => document.querySelector("#api details");

document.addEventListener("DOMContentLoaded", () => complete(document));
document.addEventListener("htmx:error", failed);
document.addEventListener("htmx:response:error", failed);
document.addEventListener("htmx:before:swap", () => { isJsonOpen = Boolean(json()?.open); });
document.addEventListener("htmx:after:swap", (event) => {
  complete(document);
  if (json()) json().open = isJsonOpen;
  if (event.detail.ctx.response.status >= 400) return; // Nothing was swapped.
  unanswered = 0;
  noteStale(false);
});
