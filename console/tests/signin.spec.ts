// The views and actions of each role.
import { expect, listed, open, PERSON, ROLES, test } from "./scene.ts";

test.describe("without a token", () => {
  test.use({ expected: [401] });

  test("the console asks for one, says what is wrong with a bad one, and forgets it on demand", async ({ page, scene }) => {
    await page.goto(scene.url);
    await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
    await page.getByLabel("Token").fill("tp_wrong");
    await page.getByRole("button", { name: "Sign in" }).click();
    await expect(page.getByRole("alert")).toContainText("token");
    await page.getByLabel("Token").fill(scene.tokens.viewer);
    await page.getByLabel("Token").press("Enter");
    await expect(listed(page, "top-talkers")).toBeVisible();
    await page.reload();
    await expect(listed(page, "top-talkers")).toBeVisible();
    await page.getByRole("button", { name: "Sign out" }).click();
    await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0);
  });
});

test("a link brings a token, which does not stay in the address", async ({ page, scene }) => {
  await page.goto(`${scene.url}#token=${scene.tokens.viewer}`);
  await expect(page.getByRole("banner")).toContainText("viewer");
  expect(page.url()).toBe(`${scene.url}#/`);
});

test("a link does not replace a token that is in use unasked", async ({ page, scene }) => {
  await page.goto(`${scene.url}#token=${scene.tokens.viewer}`);
  await expect(page.getByRole("banner")).toContainText("viewer");
  const kept = () => page.evaluate(() => sessionStorage.getItem("twinprobe-token"));
  const follow = (token: string) => page.evaluate((token) => void (location.hash = `#token=${token}`), token);
  await follow(scene.tokens.operator);
  await expect(page.getByRole("alert")).toContainText("another token");
  expect(page.url()).toBe(`${scene.url}#/`);
  expect(await kept()).toBe(scene.tokens.viewer);
  await page.getByRole("button", { name: "Stay signed in" }).click();
  await expect(page.getByRole("alert")).toHaveCount(0);
  await expect(page.getByRole("banner")).toContainText("viewer");
  expect(await kept()).toBe(scene.tokens.viewer);
  // A link with the token in use offers nothing, even after a reload. A link with another token does.
  await page.goto(`${scene.url}#token=${scene.tokens.viewer}`);
  await page.reload();
  await expect(page.getByRole("alert")).toHaveCount(0);
  await page.goto("about:blank");
  await page.goto(`${scene.url}#token=${scene.tokens.operator}`);
  await expect(page.getByRole("alert")).toContainText("another token");
  expect(await kept()).toBe(scene.tokens.viewer);
  await page.getByRole("button", { name: "Use the other token" }).click();
  await expect(page.getByRole("banner")).toContainText("operator");
  expect(await kept()).toBe(scene.tokens.operator);
});

test("a link does not replace a certificate or the socket that is in use unasked", async ({ page, scene }) => {
  await page.goto(scene.local);
  await expect(page.getByRole("banner")).toContainText("admin");
  await page.evaluate((token) => void (location.hash = `#token=${token}`), scene.tokens.viewer);
  await expect(page.getByRole("alert")).toContainText("another token");
  await expect(page.getByRole("banner")).toContainText("admin");
});

test("over the Unix socket no token is needed", async ({ page, scene }) => {
  await page.goto(scene.local);
  await expect(listed(page, "top-talkers")).toBeVisible();
  await expect(page.getByRole("banner")).toContainText("admin");
});

test("a certificate in the browser is credential enough", async ({ browser, scene }) => {
  const { origin } = new URL(scene.url);
  const clientCertificates = [{ origin, certPath: scene.path("person.pem"), keyPath: scene.path("person-key.pem") }];
  const context = await browser.newContext({ ignoreHTTPSErrors: true, clientCertificates });
  const page = await context.newPage();
  await page.goto(scene.url);
  await expect(listed(page, "top-talkers")).toBeVisible();
  await expect(page.getByRole("banner").getByTitle(PERSON)).toHaveText("operator");
  await expect(page.getByRole("button", { name: "Sign out" })).toHaveCount(0);
  // The test opens the view by its address: each change redraws the overview, which may lose a click on a busy machine.
  await page.goto(`${scene.url}#/probe/top-talkers`);
  await expect(page.getByText("Largest over")).toBeVisible();
  await expect(page.getByRole("link", { name: "Edit" })).toBeVisible();
  await context.close();
});

test("files of the console have a strict policy and nothing of this host", async ({ page, scene }) => {
  const answer = (await page.goto(scene.url + "#/capabilities"))!;
  const policy = answer.headers()["content-security-policy"]!;
  expect(policy).toContain("default-src 'none'");
  expect(policy).not.toContain("unsafe");
  expect(answer.headers()["x-content-type-options"]).toBe("nosniff");
  expect(answer.headers()["cache-control"]).toBe("no-cache");
  const script = /src="(\/console\/[^"]+\.js)"/.exec(await answer.text())![1]!;
  const file = await page.request.get(new URL(script, scene.url).href, { headers: { "accept-encoding": "br" } });
  expect(file.headers()["content-encoding"]).toBe("br");
  expect(file.headers()["cache-control"]).toContain("immutable");
  expect((await page.request.get(scene.url + "console/nothing.js")).status()).toBe(404);
});
test.use({ expected: [401] });

for (const role of ROLES) {
  test(`the role ${role} sees what it may`, async ({ page, scene }) => {
    const rank = ROLES.indexOf(role);
    await open(page, scene, role);
    await expect(page.getByRole("banner")).toContainText(role);
    await expect(page.getByRole("main").getByRole("link", { name: "New probe" })).toHaveCount(rank >= 2 ? 1 : 0);
    await page.goto(`${scene.url}#/probe/top-talkers`);
    for (const [tab, needed] of [["Chart", 1], ["Table", 1], ["Histogram", 1], ["Attachment", 0], ["Revisions", 2], ["Windows", 0]] as const) {
      await expect(page.getByRole("tab", { name: tab, exact: true }), tab).toHaveCount(rank >= needed ? 1 : 0);
    }
    await expect(page.getByRole("link", { name: "Edit" })).toHaveCount(rank >= 2 ? 1 : 0);
    await page.goto(`${scene.url}#/new`);
    if (rank >= 2) await expect(page.getByRole("link", { name: /packet-counter/ })).toBeVisible();
    else await expect(page.getByText("the role operator")).toBeVisible();
    await page.goto(`${scene.url}#/replay`);
    await expect(page.getByRole("button", { name: "Replay" })).toHaveCount(rank >= 2 ? 1 : 0);
  });
}

test.describe("an operator", () => {
  test.use({ expected: [403] });

  test("is told that deciding about packets needs the role admin", async ({ page, scene }) => {
    await open(page, scene, "operator", "new/packet-counter");
    await page.getByLabel("Verdict").first().selectOption("enforce");
    await page.getByRole("button", { name: "Deploy" }).click();
    await expect(page.getByRole("alert")).toContainText("the role admin is needed");
  });
});
