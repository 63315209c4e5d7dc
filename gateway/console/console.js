// The console: what GET requests of this gateway tell of the cluster, asked for every two seconds while the page is seen. All of
// it is put into the page as text, never as HTML: names come from people who deploy.
"use strict";

const PERIOD_MS = 2000;
const MOST_FUNCTIONS = 200;
const MOST_RUNS = 30;
const KEY = "troupe-api-key"; // until the tab is closed

const byId = (id) => document.getElementById(id);

function element(tag, className, ...content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...content);
  return made;
}

function chip(text, className, title) {
  const made = element("span", `chip ${className}`, text);
  if (title) made.title = title;
  return made;
}

// --- numbers, as people read them ---

const count = (number) => Number(number).toLocaleString("en");

function rate(perSecond) {
  if (perSecond === null) return "–";
  return perSecond >= 100 ? count(Math.round(perSecond)) : perSecond.toFixed(perSecond >= 10 ? 0 : 1);
}

function duration(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return "–";
  if (seconds < 1) return `${(1000 * seconds).toFixed(seconds < 0.01 ? 2 : 1)} ms`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

const percent = (share) => (share === null ? "–" : `${(100 * share).toFixed(share > 0.99 && share < 1 ? 2 : 1)} %`);

// --- what the gateway tells ---

class Refused extends Error {}

async function get(path, read = "json") {
  const key = sessionStorage.getItem(KEY);
  const answer = await fetch(path, { headers: key ? { Authorization: `Bearer ${key}` } : {}, cache: "no-store" });
  if (answer.status === 401 || answer.status === 403) throw new Refused((await answer.json()).error);
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
  return answer[read]();
}

// {"NAME/VERSION": {in_time: N, late_queue: N, ...}} of troupe_slo_requests_total.
function slosIn(metrics) {
  const slos = {};
  for (const line of metrics.split("\n")) {
    const found = line.match(/^troupe_slo_requests_total\{(.*)\} (\S+)$/);
    if (!found) continue;
    const labels = Object.fromEntries([...found[1].matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map((m) => [m[1], m[2]]));
    (slos[`${labels.function}/${labels.version}`] ??= {})[labels.outcome] = Number(found[2]);
  }
  return slos;
}

async function ask() {
  const [cluster, functions, statistics, runs, imports, metrics] = await Promise.all([
    get("/v2/troupe/cluster"), get("/v2/troupe/functions"), get("/v2/models/stats"), get("/v2/troupe/runs"),
    get("/v2/troupe/imports"), get("/metrics", "text")]);
  const stats = Object.fromEntries(statistics.model_stats.map((one) => [`${one.name}/${one.version}`, one.inference_stats]));
  return { at: performance.now() / 1000, cluster, functions, stats, runs, imports, slos: slosIn(metrics) };
}

// What was served between two answers: requests a second and the mean of their latencies; nulls where there is none.
function served(now, before, key) {
  const [ours, theirs] = [now.stats[key], before?.stats[key]];
  if (!ours || !theirs) return { perSecond: null, latency: null };
  const requests = ours.success.count + ours.fail.count - theirs.success.count - theirs.fail.count;
  const good = ours.success.count - theirs.success.count;
  return {
    perSecond: Math.max(0, requests) / (now.at - before.at),
    latency: good > 0 ? (ours.success.ns - theirs.success.ns) / good / 1e9 : null,
  };
}

function inTime(slo) {
  if (!slo) return null;
  const all = Object.values(slo).reduce((sum, one) => sum + one, 0);
  return all > 0 ? slo.in_time / all : null;
}

// --- tables ---

function fill(table, heads, rows) {
  const head = element("tr", "", ...heads.map(([text, className]) => element("th", className ?? "", text)));
  table.replaceChildren(element("thead", "", head), element("tbody", "", ...rows));
}

const cell = (...content) => element("td", "", ...content);
const number = (text) => element("td", "number", text);

const MEMBER_COLOURS = { ALIVE: "good", SUSPECT: "warn", DRAINING: "warn", DEAD: "bad", LEFT: "quiet" };
const GPU_COLOURS = { ready: "good", unfit: "bad" };

function memberRow({ member, load, silent_ns: silent }) {
  const state = member.state.replace("MEMBER_", "");
  const gpus = member.gpus.map((gpu) => chip(`${gpu.index} ${gpu.state}`, GPU_COLOURS[gpu.state] ?? "warn",
    [gpu.device, gpu.kind, gpu.problem].filter(Boolean).join(", ")));
  const node = member.kind === "MEMBER_NODE";
  return element("tr", "",
    cell(member.name), cell(member.kind.replace("MEMBER_", "").toLowerCase()),
    cell(chip(state.toLowerCase(), MEMBER_COLOURS[state] ?? "warn"),
      state === "DEAD" ? ` for ${duration(Number(silent) / 1e9)}` : ""),
    cell(...gpus), number(count(load.queued)), number(node ? count(load.running) : ""),
    number(node ? percent(load.busy_share) : ""), number(count(load.served)), number(node ? count(load.swaps) : ""));
}

const nameOf = ({ record }) => `${record.key.name}/${record.key.version}`;

function functionRow(now, before, one) {
  const { record, adopted_by: holders, resident_on: gpus, binding } = one;
  const key = nameOf(one);
  const { perSecond, latency } = served(now, before, key);
  const slo = now.slos[key];
  const share = inTime(slo);
  const missed = slo ? Object.entries(slo).filter(([name, many]) => name !== "in_time" && many > 0)
    .map(([name, many]) => `${name.replace("_", ": ")} ${count(many)}`).join(", ") : "";
  const inTimeCell = number(percent(share));
  if (share !== null && share < record.slo.percentile / 100) inTimeCell.classList.add("bad");
  inTimeCell.title = missed;
  const deadline = Number(record.slo.deadline_ns) / 1e9;
  const state = record.problem ? chip("cannot serve", "bad", record.problem)
    : !record.loaded ? chip("unloaded", "quiet")
    : holders.length === 0 ? chip("no copy", "bad", "no node holds the model") : chip("served", "good");
  return {
    key, perSecond: perSecond ?? 0, searched: `${key} ${record.tenant}`,
    row: element("tr", "",
      cell(key), cell(record.tenant), cell(state, binding ? ` ${binding}` : ""),
      number(rate(perSecond)), number(duration(latency)), number(duration(deadline)), inTimeCell,
      cell(gpus.join(", ")), cell(holders.join(", "))),
  };
}

const RUN_COLOURS = { PENDING: "quiet", RUNNING: "warn", SUCCEEDED: "good", FAILED: "bad", CANCELLED: "quiet" };
const STEP_COLOURS = { COMMITTED: "good", SKIPPED: "quiet", FAILED: "bad" };

function runRow(run) {
  const state = run.state.replace("RUN_", "");
  const began = Number(run.start.unix_ns) / 1e6;
  const ended = Number(run.finished_unix_ns) / 1e6;
  const steps = run.steps.map((step) => {
    const end = step.end.replace("STEP_", "");
    return chip(step.step, STEP_COLOURS[end] ?? "warn", `${end.toLowerCase()}${step.message ? `: ${step.message}` : ""}`);
  });
  const why = state === "FAILED" && run.message ? [element("div", "quiet", run.message)] : [];
  return element("tr", "",
    cell(run.start.run), cell(run.start.workflow), cell(chip(state.toLowerCase(), RUN_COLOURS[state] ?? "warn", run.message), ...why),
    cell(new Date(began).toLocaleTimeString()), number(duration(((ended || Date.now()) - began) / 1000)), cell(...steps));
}

function importRow(one) {
  const bar = element("progress");
  bar.max = Math.max(1, Number(one.steps_total));
  bar.value = Number(one.steps);
  return element("tr", "", cell(one.onnx_digest.slice(0, 12)), cell(one.stage), cell(bar), number(count(one.ahead)),
    number(duration(Number(one.age_ns) / 1e9)));
}

// --- the page ---

function tile(figure, words, className = "") {
  return element("div", "tile", element("b", className, figure), element("span", "", words));
}

function showTiles(now, before) {
  const nodes = now.cluster.members.filter(({ member }) => member.kind === "MEMBER_NODE" && member.state !== "MEMBER_LEFT");
  const alive = nodes.filter(({ member }) => ["MEMBER_ALIVE", "MEMBER_DRAINING"].includes(member.state));
  const gpus = nodes.flatMap(({ member }) => member.gpus);
  const ready = alive.flatMap(({ member }) => member.gpus).filter((gpu) => gpu.state === "ready");
  const sum = (field) => now.cluster.members.reduce((all, { load }) => all + Number(load[field]), 0);
  const perSecond = before ? now.functions.reduce((all, one) => all + (served(now, before, nameOf(one)).perSecond ?? 0), 0) : null;
  const slos = Object.values(now.slos);
  const all = slos.flatMap((slo) => Object.values(slo)).reduce((a, b) => a + b, 0);
  const share = all > 0 ? slos.reduce((good, slo) => good + (slo.in_time ?? 0), 0) / all : null;
  const short = Number(now.cluster.models_short);
  byId("tiles").replaceChildren(
    tile(`${alive.length} of ${nodes.length}`, "nodes alive", alive.length < nodes.length ? "bad" : ""),
    tile(`${ready.length} of ${gpus.length}`, "GPUs ready", ready.length < gpus.length ? "bad" : ""),
    tile(count(now.functions.length), "functions"),
    tile(rate(perSecond), "requests a second"),
    tile(percent(share), "in time"),
    tile(count(sum("queued")), "requests wait"),
    tile(count(short), "models with too few copies", short > 0 ? "warn" : ""));
}

function showFunctions(now, before) {
  const wanted = byId("filter").value.toLowerCase();
  const rows = now.functions.map((one) => functionRow(now, before, one))
    .filter(({ searched }) => searched.toLowerCase().includes(wanted))
    .sort((a, b) => b.perSecond - a.perSecond || a.key.localeCompare(b.key));
  fill(byId("functions"), [["name/version"], ["tenant"], ["state"], ["requests/s", "number"], ["latency", "number"],
    ["deadline", "number"], ["in time", "number"], ["on GPUs"], ["in host memory of"]], rows.slice(0, MOST_FUNCTIONS).map(({ row }) => row));
  const more = rows.length - MOST_FUNCTIONS;
  byId("functions-note").textContent = rows.length === 0 ? "No function is deployed, or none has this name: troupe function deploy FILE."
    : more > 0 ? `${count(more)} more with fewer requests.` : "";
}

function show(now, before) {
  byId("cluster").textContent = `cluster ${now.cluster.cluster}`;
  showTiles(now, before);
  fill(byId("members"), [["name"], ["role"], ["state"], ["GPUs"], ["waiting", "number"], ["running", "number"], ["busy", "number"],
    ["served", "number"], ["swaps", "number"]], now.cluster.members.map(memberRow));
  showFunctions(now, before);
  const runs = now.runs.slice().sort((a, b) => Number(b.start.unix_ns) - Number(a.start.unix_ns));
  fill(byId("runs"), [["run"], ["workflow"], ["state"], ["began"], ["took", "number"], ["steps"]], runs.slice(0, MOST_RUNS).map(runRow));
  byId("runs-note").textContent = runs.length === 0 ? "No run is known." : "";
  byId("imports-section").hidden = now.imports.length === 0;
  fill(byId("imports"), [["file"], ["stage"], ["done"], ["ahead", "number"], ["for", "number"]], now.imports.map(importRow));
}

function say(text, className) {
  byId("state").textContent = text;
  byId("state").className = className;
}

let now = null;
let before = null;

async function update() {
  try {
    const answer = await ask();
    [before, now] = [now, answer];
    show(now, before);
    byId("login").hidden = true;
    byId("page").hidden = false;
    say("live", "good");
  } catch (error) {
    const refused = error instanceof Refused;
    byId("login").hidden = !refused;
    if (refused) byId("page").hidden = true;
    say(refused ? error.message : `no answer from the gateway: ${error.message}`, "bad");
  }
}

// One question after the other: a slow gateway is not asked twice at a time.
async function goOn() {
  if (!document.hidden) await update();
  setTimeout(goOn, PERIOD_MS);
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("key").value.trim());
  byId("key").value = "";
  update();
});
byId("filter").addEventListener("input", () => now && showFunctions(now, before));
goOn();
