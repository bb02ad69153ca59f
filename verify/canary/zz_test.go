package canary
import ("testing";"os";"math/rand/v2";"fmt")
func TestDev(t *testing.T) {
	f := os.Getenv("DEVFILE"); if f=="" {t.Skip()}
	data,_ := os.ReadFile(f)
	w := Python{}
	su,err := w.parse(Source{f,data}); if err!=nil {t.Fatal(err)}
	var ids []string
	for _, fn := range su.(*pyFile).functions { if len(fn.title)>4 && fn.title[:4]=="test" { id:=fn.title; if fn.class!="" {id=lastPart(fn.class)+"."+id}; ids=append(ids,id)} }
	p,err := Plant(w, Order{Tests:ids,Sources:[]Source{{f,data}},Rand:rand.New(rand.NewPCG(1,2))})
	if err!=nil {t.Fatal(err)}
	os.WriteFile(os.Getenv("DEVOUT"), p.Files[0].Data, 0o644)
	m := ""
	for _, tw := range p.Twins { m += fmt.Sprintf("%s\t%s\t%s\t%s\n", tw.Name, tw.Original, tw.Kind, tw.Site) }
	os.WriteFile(os.Getenv("DEVOUT")+".map", []byte(m), 0o644)
	fmt.Println(len(ids), len(p.Twins), p.Without)
}
