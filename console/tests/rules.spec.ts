// Rules over the windows of real traffic: the list, one rule, and the way back.
import { execFileSync, spawn } from "node:child_process";
import { expect, open, ROLES, type Scene, test } from "./scene.ts";

const URL_OF = (name: string) => `/v1/rules/${name}`;
/** The probe counts from its deployment on, and 350 packets arrive each second. */
const BUSY = "rate(ingress.talker, 'packets') > 100";
const IDLE = "rate(ingress.talker, 'packets') > 100000000";
/** An address that sends only while the test lets it. */
const VISITOR = "192.0.2.13";
const sent = (window: string) => `sum(${window}ingress.talker, '${VISITOR}', 'packets')`;
const VISITED = `${sent("")} > ${sent("previous.")}`;
const MARK = { mark: "most of {{top(ingress.talker)}}" };

async function put(scene: Scene, name: string, rule: object, message = "") {
  const answer = await scene.api("PUT", `${URL_OF(name)}?message=${encodeURIComponent(message)}`, { watch: "top-talkers", ...rule });
  if (answer.status >= 300) throw new Error(answer.text);
}

/** An address sends until the returned function is called. */
function visit(): () => void {
  const client = process.env.CONSOLE_CLIENT!;
  const address = (change: string) => execFileSync("ip", ["-n", client, "address", change, `${VISITOR}/24`, "dev", "client0"]);
  address("add");
  const ping = spawn("nsenter", [`--net=/run/netns/${client}`, "ping", "-q", "-i", "0.1", "-I", VISITOR, "192.0.2.2"], { stdio: "ignore" });
  return () => {
    ping.kill();
    address("del");
  };
}

const remove = (scene: Scene, ...names: string[]) => Promise.all(names.map((name) => scene.api("DELETE", URL_OF(name))));

test("the list has each rule, and what rules do comes by itself", async ({ page, scene }) => {
  await put(scene, "quiet", { when: IDLE, do: [MARK] });
  await open(page, scene, "operator");
  await page.getByRole("navigation").getByRole("link", { name: "Rules" }).click();
  await expect(page).toHaveURL(/#\/rules$/);
  const row = (name: string) => page.getByRole("region", { name: "Rules" }).getByRole("row").filter({ has: page.getByRole("rowheader", { name }) });
  const cell = (name: string, index: number) => row(name).getByRole("cell").nth(index);
  for (const [index, text] of ["top-talkers", "watching", IDLE, "never", "20", "none"].entries()) {
    await expect(cell("quiet", index)).toHaveText(text);
  }
  // From here on the test clicks nothing.
  await put(scene, "loud", { when: BUSY, do: [{ apply: { name: "loud-packets", probe: "packet-counter", expires: "5m" } }, MARK] });
  await expect(cell("loud", 3)).toHaveText(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
  await expect(cell("loud", 1)).toHaveText("firing");
  await expect(cell("loud", 4)).toHaveText("18");
  // A rule stops if it has more actions than it may take.
  await put(scene, "greedy", { when: BUSY, do: [MARK, MARK], max_actions_per_hour: 1 });
  await expect(cell("greedy", 1)).toHaveText("stopped");
  await expect(cell("greedy", 5)).toContainText(/actions/);
  await remove(scene, "greedy", "quiet");
  await expect(row("greedy")).toHaveCount(0);
  // Each page says that a rule fires, and has a link to the rule.
  await page.getByRole("link", { name: /^\d alerts?$/ }).click();
  const alert = page.locator(".alerts li").filter({ hasText: "loud" });
  await expect(alert).toContainText(/fires since \d{4}-\d\d-\d\d .*top-talkers fulfil its condition/);
  await alert.getByRole("link", { name: "loud" }).click();
  await expect(page).toHaveURL(/#\/rule\/loud$/);
  await expect(page).toHaveTitle(/^loud/);
  await remove(scene, "loud");
  await expect(page.getByText("There is no rule of this name")).toBeVisible();
});

test("a rule shows its firings with window, time, actions and end, its document and its numbers", async ({ page, scene }) => {
  await put(scene, "seen", { when: VISITED, do: [{ apply: { name: "seen-packets", probe: "packet-counter", expires: "5m" } }, MARK] });
  await open(page, scene, "operator", "rule/seen");
  await expect(page.getByText("The rule has not fired")).toBeVisible();
  const firing = page.getByRole("region", { name: "Firings" }).getByRole("row").nth(1);
  const leave = visit();
  try {
    await expect(firing).toContainText("apply seen-packets (packet-counter) for 5m");
    await expect(firing).toContainText(/mark “most of .*192\.0\.2\.1”/);
    await expect(firing).toContainText(/taken \d\d:/);
    await expect(firing.getByRole("cell").last()).toHaveText("not yet");
    await expect(page.locator(".figures").getByRole("link", { name: "seen-packets" })).toBeVisible();
  } finally {
    leave();
  }
  await expect(firing.getByRole("cell").last()).toHaveText(/^\d{4}-/);
  await expect(page.locator(".figures")).toContainText("Probes made or changednone");
  const { firings } = JSON.parse((await scene.api("GET", URL_OF("seen"))).text) as { firings: { window: number }[] };
  await expect(firing.getByRole("rowheader")).toHaveText(String(firings[0]!.window));
  await expect(page.locator(".figures")).toContainText("Actions left in this hour18");
  await page.getByRole("tab", { name: "Document" }).click();
  await expect(page).toHaveURL(/rule\/seen\/document/);
  await expect(page.getByRole("tabpanel")).toContainText(`Fires when${VISITED}`);
  await expect(page.getByRole("region", { name: "Document" })).toContainText(`"when": "${VISITED}"`);
  await page.reload();
  await expect(page.getByRole("tab", { name: "Document" })).toHaveAttribute("aria-selected", "true");
  // One click leads to the watched probe, one click back.
  await page.getByRole("tabpanel").getByRole("link", { name: "top-talkers" }).click();
  await expect(page.getByRole("heading", { name: "top-talkers", level: 1 })).toBeVisible();
  await page.goBack();
  await expect(page.getByRole("region", { name: "Document" })).toBeVisible();
  await remove(scene, "seen");
});

test("a notification that waits is shown with its firing, without its password", async ({ page, scene }) => {
  await put(scene, "unheard", { when: BUSY, do: [{ notify: "http://me:hunter2@127.0.0.1:9/" }] });
  await open(page, scene, "operator", "rule/unheard");
  const firing = page.getByRole("region", { name: "Firings" }).getByRole("row").nth(1);
  await expect(firing).toContainText(/the notification has not arrived after \d+ attempts: 127\.0\.0\.1 was not notified/);
  await expect(firing).toContainText("***@127.0.0.1:9");
  await expect(page.getByRole("note")).toContainText("127.0.0.1 was not notified");
  await page.getByRole("tab", { name: "Document" }).click();
  await expect(page.getByRole("region", { name: "Document" })).toContainText("***@127.0.0.1:9");
  await expect(page.locator("body")).not.toContainText("hunter2");
  await page.goto(`${scene.url}#/rules`);
  await expect(page.getByRole("row").filter({ hasText: "unheard" }).getByRole("cell").last()).toContainText("was not notified");
  await remove(scene, "unheard");
});

test("a rule that has stopped itself says why", async ({ page, scene }) => {
  await put(scene, "hasty", { when: BUSY, do: [MARK, MARK], max_actions_per_hour: 1 });
  await open(page, scene, "operator", "rule/hasty");
  await expect(page.getByRole("alert")).toContainText(/has stopped itself: .*actions/);
  await remove(scene, "hasty");
});

test("revisions of a rule, their difference, and the way back", async ({ page, scene }) => {
  await put(scene, "turned", { when: IDLE, do: [MARK] });
  await put(scene, "turned", { when: IDLE, for: 3, do: [MARK] }, "was too nervous");
  await open(page, scene, "operator", "rule/turned/revisions");
  const why = (revision: string) => page.getByRole("region", { name: "Revisions" }).getByRole("row").filter({ has: page.getByRole("rowheader", { name: revision }) });
  await expect(why("2 in force")).toContainText("was too nervous");
  await expect(page.locator("tr.added")).toContainText(['"for": 3']);
  await page.getByLabel("from").selectOption("2");
  await expect(page).toHaveURL(/old=2/);
  await expect(page.getByText("are the same")).toBeVisible();
  await page.goBack();
  await page.getByRole("button", { name: "Roll back… to revision 1" }).click();
  await page.getByRole("dialog").getByLabel("Reason for the change").fill("missed too much");
  await page.getByRole("button", { name: "Roll back", exact: true }).click();
  await expect(page.getByText("Revision 1 is in force again, as revision 3.")).toBeVisible();
  await expect(why("3 in force")).toContainText("missed too much");
  const { rule } = JSON.parse((await scene.api("GET", URL_OF("turned"))).text) as { rule: { for?: number } };
  expect(rule.for ?? 1).toBe(1);
  await remove(scene, "turned");
});

test("templates stand below, with the rules that name them", async ({ page, scene }) => {
  const { ingress } = JSON.parse((await scene.api("GET", "/v1/probes/packet-counter")).text).config as { ingress: object };
  expect((await scene.api("PUT", "/v1/templates/counted", { ingress })).status).toBe(201);
  await put(scene, "names-it", { when: IDLE, do: [{ apply: { name: "counted-now", template: "counted", expires: "5m" } }] });
  await open(page, scene, "operator", "rules");
  const row = page.getByRole("region", { name: "Templates" }).getByRole("row").filter({ hasText: "counted" });
  await row.getByRole("link", { name: "names-it" }).click();
  await page.getByRole("tab", { name: "Document" }).click();
  await expect(page.getByRole("tabpanel")).toContainText("apply counted-now of template counted for 5m");
  await remove(scene, "names-it");
  await scene.api("DELETE", "/v1/templates/counted");
});

for (const role of ROLES) {
  test(`the role ${role} sees of rules what it may`, async ({ page, scene }) => {
    await put(scene, "hidden", { when: IDLE, do: [MARK] });
    const requests: string[] = [];
    page.on("request", (request) => requests.push(new URL(request.url()).pathname));
    await open(page, scene, role, "rules");
    const [rank, needed] = [ROLES.indexOf(role), ROLES.indexOf("operator")];
    for (const view of ["rules", "rule/hidden"]) {
      await page.goto(`${scene.url}#/${view}`);
      if (rank >= needed) await expect(page.getByText(view === "rules" ? IDLE : "has not fired").first()).toBeVisible();
      else await expect(page.getByText("Rules need the role operator")).toBeVisible();
    }
    const asked = requests.filter((path) => /^\/v1\/(rules|templates)/.test(path)).length;
    if (rank >= needed) expect(asked).toBeGreaterThan(0);
    else expect(asked).toBe(0);
    await remove(scene, "hidden");
  });
}

// The view requests a deleted rule until it closes.
test.use({ expected: [404] });
